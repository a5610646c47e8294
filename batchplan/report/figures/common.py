"""The sizes, legends and names that all pictures share."""

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from batchplan.report.contents import ReportContents
from batchplan.report.palette import DASHES, PLANS, WIDTH

_LONGEST = 24  # characters of a name that fit a picture


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture and its texts.

    Attributes:
        name: of its file, and its id in the page.
        title: a few words.
        caption: how to read it, without knowing the papers.
        label: its numbers, as text for screen readers.
        figure: drawn in `batchplan.report.render.style`.
    """

    name: str
    title: str
    caption: str
    label: str
    figure: Figure


def new_figure(height: float) -> tuple[Figure, Any]:
    """Return a figure as wide as a card, and its axes. ``height`` is in pixels."""
    layout = ConstrainedLayoutEngine(w_pad=2 / 72, h_pad=2 / 72)
    figure = Figure(figsize=(WIDTH / 72, height / 72), layout=layout)
    return figure, figure.add_subplot()


def legend(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """Draw a legend below the axes, in as many columns as fit."""
    figure.legend(
        handles, labels, loc="outside lower left", ncols=_columns(labels), handlelength=2.2,
        columnspacing=1.4, borderaxespad=0.2, labelspacing=0.35,
    )  # fmt: skip


def legend_height(labels: list[str]) -> int:
    """Return about the height of a legend in pixels. Pictures grow by it, so axes keep theirs."""
    return 16 * -(-len(labels) // _columns(labels))


def _columns(labels: list[str]) -> int:
    return max(1, min(3, WIDTH // (max(map(len, labels)) * 7 + 42)))


def shortened(name: str) -> str:
    """Cut the middle out of a name that is too long for a picture."""
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[1 - half :]}"


def names(contents: ReportContents) -> list[str]:
    """Return the shortened names of the plans."""
    return [shortened(plan.name) for plan in contents.plans]


def lines(contents: ReportContents) -> list[dict[str, Any]]:
    """Return the line style of each plan."""
    return [{"color": PLANS[i], "linestyle": DASHES[i]} for i in range(len(contents.plans))]
