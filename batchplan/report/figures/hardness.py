"""The loss of each batch, from the first of the epoch to the last."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, legend_height, lines, names, new_figure
from batchplan.report.palette import RANDOM

_POINTS = 64
_BAND = 5, 95  # percentiles


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
