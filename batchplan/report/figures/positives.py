"""How sure the model is of each row's own pair (GCBS, appendix D)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, legend_height, lines, names, new_figure
from batchplan.report.palette import RANDOM

_EDGES = np.linspace(0, 1, 21)


def positives(contents: ReportContents) -> Picture:
    """The rows by the probability of their positive, and the mean of each plan."""
    labels = ["random batches", *names(contents)]
    figure, axes = new_figure(208 + legend_height(labels))
    filled = axes.stairs(
        _percent(contents.random.positive_probability), _EDGES, fill=True, color=RANDOM, alpha=0.45
    )
    handles = []
    for one, look in zip(contents.plans, lines(contents), strict=True):
        found = _percent(one.profile.positive_probability)
        line = np.append(found, found[-1])
        handles += axes.plot(_EDGES, line, drawstyle="steps-post", **look)
    above = axes.get_xaxis_transform()
    for one, look in zip(contents.plans, lines(contents), strict=True):
        mean = one.evaluation.positive_probability
        axes.plot(mean, 1.02, "v", color=look["color"], transform=above, clip_on=False)
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlabel("probability of the own pair;  ▼ mean")
    axes.set_ylabel("% of rows")
    legend(figure, [filled, *handles], labels)
    means = [f"{one.name} {one.evaluation.positive_probability:.3f}" for one in contents.plans]
    return Picture(
        "positives",
        "How sure the model is already",
        "The probability (softmax) that the model gives each row's own pair among its batch. At 1 "
        "there is nothing left to learn from the batch: harder batches move rows to the left.",
        f"Mean probability of the own pair: {', '.join(means)}.",
        figure,
    )


def _percent(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    counts, _ = np.histogram(np.clip(probabilities, 0, 1), _EDGES)
    return 100 * counts / len(probabilities)
