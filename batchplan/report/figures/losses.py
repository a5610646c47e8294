"""Draws the loss of each plan next to random batches and all rows."""

from typing import Any

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, names, new_figure
from batchplan.report.palette import GRID, INK, PLANS, RANDOM


def losses(contents: ReportContents) -> Picture:
    """Draw a scale in nats for each plan (GCBS, figure 1)."""
    count = len(contents.plans)
    figure, axes = new_figure(max(240, 90 + 40 * count))
    marks: dict[str, dict[str, Any]] = {
        "random batches": {"marker": "o", "color": RANDOM, "markersize": 6},
        "oracle": {"marker": "D", "color": INK, "markersize": 5.5, "markerfacecolor": "none"},
        "all rows": {"marker": "|", "color": INK, "markersize": 12, "markeredgewidth": 2},
    }
    texts = []
    ends: list[float] = []
    for place, (plan, name) in enumerate(zip(contents.plans, names(contents), strict=True)):
        evaluation = plan.evaluation
        values = (evaluation.loss_random, evaluation.loss_oracle, evaluation.loss_global)
        axes.plot([values[0], values[2]], [place, place], color=GRID, linewidth=4, zorder=1)
        for value, mark in zip(values, marks.values(), strict=True):
            axes.plot(value, place, linestyle="none", zorder=2, **mark)
        axes.plot(evaluation.loss_train, place, "o", color=PLANS[place], markersize=10, zorder=3)
        axes.annotate(
            f"{name}: {evaluation.loss_train:.3f}", (0, place), (0, 9),
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        texts.append(f"{plan.name} {evaluation.loss_train:.3f}")
        ends += [*values, evaluation.loss_train]
    margin = 0.04 * (max(ends) - min(ends)) or 0.01
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_ylim(count - 0.55, -1.9)
    first = contents.plans[0].evaluation
    middle = (min(ends) + max(ends)) / 2
    labelled = first.loss_random, first.loss_oracle, first.loss_global
    for level, (value, name) in enumerate(zip(labelled, marks, strict=True)):
        height = -1.75 + 0.32 * level  # each on a line of its own, so that none overlap
        axes.plot([value, value], [height + 0.1, count - 1], color=GRID, linewidth=0.8, zorder=0)
        axes.annotate(name, (value, height), ha="left" if value < middle else "right", va="center")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("loss in nats: harder batches to the right")
    return Picture(
        "losses",
        "Loss of the batches",
        "The training loss that each plan gives the current model. The oracle gives every row its "
        "own hardest negatives, which no plan can do.",
        f"Losses: random batches {first.loss_random:.3f}, {', '.join(texts)}, oracle "
        f"{first.loss_oracle:.3f}, all rows {first.loss_global:.3f} nats.",
        figure,
    )
