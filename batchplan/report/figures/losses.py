"""The loss of each plan beside random batches and all rows (GCBS, figure 1), and batch by batch."""

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, legend_height, lines, names, new_figure
from batchplan.report.palette import GRID, INK, PLANS, RANDOM

_POINTS = 64
_BAND = 5, 95  # percentiles


def losses(contents: ReportContents) -> Picture:
    """A scale for each plan, all in the same nats."""
    count = len(contents.plans)
    figure, axes = new_figure(max(240, 92 + 40 * count))
    marks: dict[str, dict[str, Any]] = {
        "random batches": {"marker": "o", "color": RANDOM, "markersize": 6},
        "oracle": {"marker": "D", "color": INK, "markersize": 5.5, "markerfacecolor": "none"},
        "all rows": {"marker": "|", "color": INK, "markersize": 12, "markeredgewidth": 2},
    }
    said = []
    ends: list[float] = []
    for place, (one, name) in enumerate(zip(contents.plans, names(contents), strict=True)):
        found = one.evaluation
        values = (found.loss_random, found.loss_oracle, found.loss_global)
        axes.plot([values[0], values[2]], [place, place], color=GRID, linewidth=4, zorder=1)
        for value, mark in zip(values, marks.values(), strict=True):
            axes.plot(value, place, linestyle="none", zorder=2, **mark)
        axes.plot(found.loss_train, place, "o", color=PLANS[place], markersize=10, zorder=3)
        axes.annotate(
            f"{name}: {found.loss_train:.3f}", (0, place), (0, 9),
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        said.append(f"{one.name} {found.loss_train:.3f}")
        ends += [*values, found.loss_train]
    margin = 0.04 * (max(ends) - min(ends)) or 0.01
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_ylim(count - 0.55, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("loss in nats: harder batches to the right")
    handles = [Line2D([], [], linestyle="none", **mark) for mark in marks.values()]
    legend(figure, handles, list(marks))
    first = contents.plans[0].evaluation
    return Picture(
        "losses",
        "Loss of the batches",
        "The training loss that each plan gives the model as it is now. The oracle, which gives "
        "every row its own hardest negatives, is more than any plan can reach.",
        f"Losses: random batches {first.loss_random:.3f}, {', '.join(said)}, oracle "
        f"{first.loss_oracle:.3f}, all rows {first.loss_global:.3f} nats.",
        figure,
    )


def hardness(contents: ReportContents) -> Picture:
    """A line a plan over the band of random batches."""
    labels = ["random (9 of 10)", *names(contents)]
    figure, axes = new_figure(208 + legend_height(labels))
    low, high = np.percentile(contents.random.batch_losses, _BAND)
    axes.axhspan(low, high, color=RANDOM, alpha=0.45, linewidth=0)
    handles = []
    most = 1
    for one, look in zip(contents.plans, lines(contents), strict=True):
        found = one.profile.batch_losses
        per = -(-len(found) // _POINTS)
        most = max(most, per)
        at, means = _means(found, per)
        handles += axes.plot(at, means, **look)
    axes.locator_params(nbins=5)
    axes.margins(x=0.01)
    axes.set_xlabel("batch, in training order")
    axes.set_ylabel("mean loss in nats")
    band = Patch(color=RANDOM, alpha=0.45, linewidth=0)
    legend(figure, [band, *handles], labels)
    smoothed = f" Each point is the mean of {most} batches at most." if most > 1 else ""
    said = [
        f"{one.name} {one.profile.batch_losses.min():.2f} to {one.profile.batch_losses.max():.2f}"
        for one in contents.plans
    ]
    return Picture(
        "hardness",
        "Hardness along the epoch",
        "The mean loss of each batch. A line that climbs or falls means that training meets the "
        f"hard batches at one end of the epoch; shuffled batches spread them.{smoothed}",
        f"Mean loss of the batches: {', '.join(said)} nats; nine of ten random batches "
        f"{low:.2f} to {high:.2f}.",
        figure,
    )


def _means(
    losses: NDArray[np.float64], per: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middles, counted from 1, and the means of runs of ``per`` batches."""
    starts = np.arange(0, len(losses), per)
    ends = np.append(starts[1:], len(losses))
    return (starts + ends + 1) / 2, np.add.reduceat(losses, starts) / (ends - starts)
