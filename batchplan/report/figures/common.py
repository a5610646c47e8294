"""The sizes and names that all pictures share."""

import base64
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from batchplan.report.contents import ReportContents
from batchplan.report.palette import WIDTH
from batchplan.report.render import to_svg

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

    @property
    def svg(self) -> str:
        """The file of `to_svg` in base64, for the page. Ask for it in `style`."""
        return base64.b64encode(to_svg(self.figure)).decode()


def new_figure(height: float) -> tuple[Figure, Any]:
    """Return a figure as wide as a card, and its axes. ``height`` is in pixels."""
    layout = ConstrainedLayoutEngine(w_pad=2 / 72, h_pad=2 / 72)
    figure = Figure(figsize=(WIDTH / 72, height / 72), layout=layout)
    return figure, figure.add_subplot()


def shortened(name: str) -> str:
    """Cut the middle out of a name that is too long for a picture."""
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[1 - half :]}"


def names(contents: ReportContents) -> list[str]:
    """Return the shortened names of the plans."""
    return [shortened(plan.name) for plan in contents.plans]
