"""The colours of a report, and the style of its pictures."""

from typing import Any

#: CSS variables of the page have the same names. Pictures are drawn in these colours.
COLOURS = {
    "page": "#f4f6f8",
    "ink": "#1b1f24",
    "muted": "#59636e",
    "grid": "#dfe3e8",
    "card": "#ffffff",
    "random": "#8b949e",
    "frame": "#fdfdfd",  # of batches, on the shades of their similarities
    # Okabe and Ito (2008), distinct for people with any colour vision; darker here, so that lines
    # have a contrast of 3 to 1 with the page.
    "plan-1": "#0072b2",
    "plan-2": "#d55e00",
    "plan-3": "#00845e",
    "plan-4": "#b4518d",
    "plan-5": "#a67c00",
    "plan-6": "#3b8fc4",
}
# The palette in a dark scheme, lighter for a contrast of 3 to 1.
DARK = {
    "page": "#12161b",
    "ink": "#e8ecf1",
    "muted": "#a3adb8",
    "grid": "#343c46",
    "card": "#1b2028",
    "random": "#8b95a1",
    "frame": "#fcfcfc",
    "plan-1": "#4aa8e0",
    "plan-2": "#f08a3c",
    "plan-3": "#33b98c",
    "plan-4": "#e08cbd",
    "plan-5": "#e2b93b",
    "plan-6": "#8fd0f5",
}
INK, MUTED, GRID, CARD, RANDOM = (
    COLOURS[name] for name in ("ink", "muted", "grid", "card", "random")
)
PLANS = [colour for name, colour in COLOURS.items() if name.startswith("plan-")]
#: distinguish plans without colours
DASHES: list[Any] = ["-", (0, (4, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)), (0, (7, 2)), (0, (1, 2))]

WIDTH = 340  # px of a picture: the width of a card in a window of 400
STYLE: dict[str, Any] = {
    "figure.dpi": 72,  # a point is a pixel
    "figure.facecolor": CARD,
    "axes.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid.axis": "y",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a file name is only a $
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "font.family": "sans-serif",  # for browsers that lack the next
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "batchplan",
}
