"""The share of likely false negatives, in the plans and in random batches."""

from typing import NamedTuple

from batchplan.quality import Evaluation
from batchplan.quality.metrics import percent
from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, names, new_figure
from batchplan.report.palette import GRID, PLANS, RANDOM


class Share(NamedTuple):
    """A kind of false negatives, and its share of the pairs within batches."""

    kind: str
    planned: float
    random: float


def shares(evaluation: Evaluation) -> list[Share]:
    """The shares that were measured and are defined."""
    measured = [
        Share(f"same {negatives.column or kind}", negatives.rate, negatives.rate_random)
        for kind, negatives in evaluation.false_negatives.items()
        if negatives.rate is not None
    ]
    guard = evaluation.guard
    if guard is not None and guard.broken_share is not None:
        measured.append(Share("break the guard", guard.broken_share, guard.broken_share_random))
    return measured


def false_negatives(contents: ReportContents) -> Picture | None:
    """Draw the share from random batches to each plan; None if no share was measured."""
    by_plan = [shares(plan.evaluation) for plan in contents.plans]
    if not all(by_plan):
        return None
    kinds = len(by_plan[0])
    figure, axes = new_figure(max(240, 60 + 34 * kinds + 38 * kinds * len(by_plan)))
    place, texts = 0.0, []
    for kind in range(kinds):
        title = by_plan[0][kind].kind
        axes.annotate(
            f"{title}: {percent(by_plan[0][kind].random)} in random batches", (0, place),
            xycoords=("axes fraction", "data"), va="center",
        )  # fmt: skip
        for number, (own, name) in enumerate(zip(by_plan, names(contents), strict=True)):
            place += 0.95
            _, planned, random = own[kind]
            axes.plot([100 * random, 100 * planned], [place] * 2, color=GRID, lw=3, zorder=1)
            for share, colour, size in ((random, RANDOM, 6), (planned, PLANS[number], 8)):
                axes.plot(100 * share, place, "o", color=colour, markersize=size, clip_on=False)
            axes.annotate(
                f"{name}: {percent(planned)}", (0, place), (0, 7),
                xycoords=("axes fraction", "data"), textcoords="offset points",
            )  # fmt: skip
            texts.append(f"{title}: {name} {percent(planned)}, random {percent(random)}")
        place += 1.15
    axes.set_ylim(place - 0.6, -0.6)
    axes.set_xlim(left=0)
    axes.margins(x=0.05)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("% of the pairs that share a batch: fewer is better")
    return Picture(
        "false-negatives",
        "Likely false negatives",
        "Pairs that training pushes away from each other although they belong together. Hard "
        "batches have more of them than random batches, unless a guard separates them.",
        "; ".join(texts) + ".",
        figure,
    )
