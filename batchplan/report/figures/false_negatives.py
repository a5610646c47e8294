"""How many of the negatives are likely none, in the plan and in random batches."""

from typing import NamedTuple

from matplotlib.lines import Line2D

from batchplan.quality import Evaluation
from batchplan.quality.metrics import percent
from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, names, new_figure
from batchplan.report.palette import GRID, PLANS, RANDOM


class Share(NamedTuple):
    """A kind of false negatives, and their share of the pairs that share a batch."""

    kind: str
    planned: float
    random: float


def shares(evaluation: Evaluation) -> list[Share]:
    """Those that were asked for and are defined."""
    found = [
        Share(f"same {one.column or kind}", one.rate, one.rate_random)
        for kind, one in evaluation.false_negatives.items()
        if one.rate is not None
    ]
    guard = evaluation.guard
    if guard is not None and guard.broken_share is not None:
        found.append(Share("break the guard", guard.broken_share, guard.broken_share_random))
    return found


def false_negatives(contents: ReportContents) -> Picture | None:
    """From random batches to each plan; None if nothing says which negatives are false."""
    found = [shares(one.evaluation) for one in contents.plans]
    if not all(found):
        return None
    kinds = len(found[0])
    figure, axes = new_figure(max(240, 74 + 24 * kinds + 20 * kinds * len(found)))
    place, said = 0.0, []
    for kind in range(kinds):
        title = found[0][kind].kind
        axes.annotate(title, (0, place), xycoords=("axes fraction", "data"), va="center")
        for number, (one, name) in enumerate(zip(found, names(contents), strict=True)):
            place += 0.85
            _, planned, random = one[kind]
            axes.plot([100 * random, 100 * planned], [place] * 2, color=GRID, lw=3, zorder=1)
            for share, colour, size in ((random, RANDOM, 6), (planned, PLANS[number], 8)):
                axes.plot(100 * share, place, "o", color=colour, markersize=size, clip_on=False)
            said.append(f"{title}: {name} {percent(planned)}, random {percent(random)}")
        place += 1.15
    axes.set_ylim(place - 0.6, -0.6)
    axes.set_xlim(left=0)
    axes.margins(x=0.05)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("% of the pairs that share a batch: fewer is better")
    dots = [
        Line2D([], [], linestyle="none", marker="o", color=colour)
        for colour in (RANDOM, *PLANS[: len(found)])
    ]
    legend(figure, dots, ["random batches", *names(contents)])
    return Picture(
        "false-negatives",
        "Likely false negatives",
        "Rows that training pushes apart although they belong together. Hard batches hold more of "
        "them than random ones, unless a guard keeps them apart.",
        "; ".join(said) + ".",
        figure,
    )
