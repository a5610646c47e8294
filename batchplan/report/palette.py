"""The colours of a report, and the style of its pictures."""

from typing import Any

# By name, in a light scheme and in a dark one, which is lighter for a contrast of 3 to 1.
_PALETTE = {
    "page": ("#f4f6f8", "#12161b"),
    "ink": ("#1b1f24", "#e8ecf1"),
    "muted": ("#59636e", "#a3adb8"),
    "grid": ("#dfe3e8", "#343c46"),
    "card": ("#ffffff", "#1b2028"),
    "random": ("#8b949e", "#8b95a1"),
    "frame": ("#fdfdfd", "#fcfcfc"),  # of batches, on the shades of their similarities
    # Okabe and Ito (2008), distinct for people with any colour vision; darker here, so that lines
    # have a contrast of 3 to 1 with the page.
    "plan-1": ("#0072b2", "#4aa8e0"),
    "plan-2": ("#d55e00", "#f08a3c"),
    "plan-3": ("#00845e", "#33b98c"),
    "plan-4": ("#b4518d", "#e08cbd"),
    "plan-5": ("#a67c00", "#e2b93b"),
    "plan-6": ("#3b8fc4", "#8fd0f5"),
}
#: CSS variables of the page have the same names. Pictures are drawn in the light colours.
COLOURS = {name: light for name, (light, _) in _PALETTE.items()}
DARK = {name: dark for name, (_, dark) in _PALETTE.items()}
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
