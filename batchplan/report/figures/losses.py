"""Draws the loss of each plan next to random batches and all rows, and the loss by batch."""

from typing import Any

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, legend_height, lines, names, new_figure
from batchplan.report.palette import GRID, INK, PLANS, RANDOM

_POINTS = 64
_BAND = 5, 95  # percentiles


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


def hardness(contents: ReportContents) -> Picture:
    """Draw the loss by batch: a line for each plan over the band of random batches."""
    labels = ["random (9 of 10)", *names(contents)]
    figure, axes = new_figure(208 + legend_height(labels))
    low, high = np.percentile(contents.random, _BAND)
    axes.axhspan(low, high, color=RANDOM, alpha=0.45, linewidth=0)
    handles, texts = [], []
    longest = 1
    for plan, look in zip(contents.plans, lines(contents), strict=True):
        batch_losses = plan.batch_losses
        run = -(-len(batch_losses) // _POINTS)
        longest = max(longest, run)
        handles += axes.plot(*_means(batch_losses, run), **look)
        texts.append(f"{plan.name} {batch_losses.min():.2f} to {batch_losses.max():.2f}")
    axes.locator_params(nbins=5)
    axes.margins(x=0.01)
    axes.set_xlabel("batch, in training order")
    axes.set_ylabel("mean loss in nats")
    band = Patch(color=RANDOM, alpha=0.45, linewidth=0)
    legend(figure, [band, *handles], labels)
    smoothed = f" Each point is the mean of at most {longest} batches." if longest > 1 else ""
    return Picture(
        "hardness",
        "Hardness along the epoch",
        "The mean loss of each batch. If a line rises or falls, the hard batches are at one end of "
        f"the epoch; shuffling the batches spreads them.{smoothed}",
        f"Mean loss of the batches: {', '.join(texts)} nats; nine of ten random batches "
        f"{low:.2f} to {high:.2f}.",
        figure,
    )


def _means(
    losses: NDArray[np.float64], run: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middles, counted from 1, and the means of runs of ``run`` batches."""
    starts = np.arange(0, len(losses), run)
    ends = np.append(starts[1:], len(losses))
    return (starts + ends + 1) / 2, np.add.reduceat(losses, starts) / (ends - starts)
