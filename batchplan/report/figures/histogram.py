"""How similar the rows of a batch are (BatchSampler, figure 4)."""

from __future__ import annotations

import numpy as np

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, legend, legend_height, lines, names, new_figure
from batchplan.report.palette import RANDOM


def histogram(contents: ReportContents) -> Picture | None:
    """The negatives of all batches by their similarity; None where there are no negatives."""
    found = [one.evaluation for one in contents.plans]
    if not all(one.similarity_histogram for one in found):
        return None
    labels = ["random batches", *names(contents)]
    figure, axes = new_figure(208 + legend_height(labels))
    edges = np.array(found[0].similarity_histogram["edges"])
    random = 100 * np.array(found[0].similarity_histogram["random"])
    shares = [100 * np.array(one.similarity_histogram["plan"]) for one in found]
    filled = axes.stairs(random, edges, fill=True, color=RANDOM, alpha=0.45)
    handles = [
        axes.plot(edges, np.append(one, one[-1]), drawstyle="steps-post", **look)[0]
        for one, look in zip(shares, lines(contents), strict=True)
    ]
    held = np.flatnonzero(np.max([random, *shares], axis=0) >= 0.02)
    axes.set_xlim(edges[max(held[0] - 1, 0)], edges[min(held[-1] + 2, len(edges) - 1)])
    axes.set_ylim(bottom=0)
    axes.locator_params(nbins=5)
    axes.set_xlabel(f"similarity ({contents.options.similarity}) of two rows of a batch")
    axes.set_ylabel("% of negatives")
    legend(figure, [filled, *handles], labels)
    medians = [
        f"{one.name} {measured.similarity_percentiles['50']:.3f}"
        for one, measured in zip(contents.plans, found, strict=True)
    ]
    return Picture(
        "histogram",
        "How similar rows of a batch are",
        "All pairs of different rows that share a batch. Further right than random batches is "
        "harder; a long tail on the right may be false negatives.",
        f"Histogram of similarities in batches; medians: {', '.join(medians)}.",
        figure,
    )
