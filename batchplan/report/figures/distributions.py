"""How similar the rows of a batch are (BatchSampler, figure 4), and how sure the model is of each
row's own pair (GCBS, appendix D)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, legend_height, lines, names, new_figure
from batchplan.report.palette import RANDOM

_PROBABILITIES = np.linspace(0, 1, 21)  # edges of bins


def histogram(contents: ReportContents) -> Picture | None:
    """The negatives of all batches by their similarity; None where there are no negatives."""
    histograms = [plan.evaluation.similarity_histogram for plan in contents.plans]
    if not all(histograms):
        return None
    edges = np.array(histograms[0]["edges"])
    random = 100 * np.array(histograms[0]["random"])
    shares = [100 * np.array(histogram["plan"]) for histogram in histograms]
    axes = _step_figure(contents, edges, random, shares)
    held = np.flatnonzero(np.max([random, *shares], axis=0) >= 0.02)
    axes.set_xlim(edges[max(held[0] - 1, 0)], edges[min(held[-1] + 2, len(edges) - 1)])
    axes.locator_params(nbins=5)
    axes.set_xlabel(f"similarity ({contents.options.similarity}) of two rows of a batch")
    axes.set_ylabel("% of negatives")
    medians = [
        f"{plan.name} {plan.evaluation.similarity_percentiles['50']:.3f}" for plan in contents.plans
    ]
    return Picture(
        "histogram",
        "How similar rows of a batch are",
        "All pairs of different rows that share a batch. Further right than random batches is "
        "harder; a long tail on the right may be false negatives.",
        f"Histogram of similarities in batches; medians: {', '.join(medians)}.",
        axes.figure,
    )


def positives(contents: ReportContents) -> Picture:
    """The rows by the probability of their positive, and the mean of each plan."""
    planned = [_percent(plan.profile.positive_probability) for plan in contents.plans]
    random = _percent(contents.random.positive_probability)
    axes = _step_figure(contents, _PROBABILITIES, random, planned)
    above = axes.get_xaxis_transform()
    for plan, look in zip(contents.plans, lines(contents), strict=True):
        mean = plan.evaluation.positive_probability
        axes.plot(mean, 1.02, "v", color=look["color"], transform=above, clip_on=False)
    axes.set_xlim(0, 1)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlabel("probability of the own pair;  ▼ mean")
    axes.set_ylabel("% of rows")
    means = [f"{plan.name} {plan.evaluation.positive_probability:.3f}" for plan in contents.plans]
    return Picture(
        "positives",
        "How sure the model is already",
        "The softmax probability that the model gives each row's own pair within its batch. At 1, "
        "the batch has nothing left to teach: harder batches move rows to the left.",
        f"Mean probability of the own pair: {', '.join(means)}.",
        axes.figure,
    )


def _percent(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    counts, _ = np.histogram(np.clip(probabilities, 0, 1), _PROBABILITIES)
    return 100 * counts / len(probabilities)


def _step_figure(
    contents: ReportContents,
    edges: NDArray[np.float64],
    random: NDArray[np.float64],
    planned: list[NDArray[np.float64]],
) -> Any:
    """Axes with percentages by bin: a line per plan over the area of random batches."""
    labels = ["random batches", *names(contents)]
    figure, axes = new_figure(208 + legend_height(labels))
    handles = [axes.stairs(random, edges, fill=True, color=RANDOM, alpha=0.45)]
    for shares, look in zip(planned, lines(contents), strict=True):
        handles += axes.plot(edges, np.append(shares, shares[-1]), drawstyle="steps-post", **look)
    axes.set_ylim(bottom=0)
    legend(figure, handles, labels)
    return axes
