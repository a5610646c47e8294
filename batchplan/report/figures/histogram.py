"""Draws how similar the rows of a batch are (BatchSampler, figure 4)."""

import numpy as np

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture, names, new_figure
from batchplan.report.palette import DASHES, PLANS, RANDOM, WIDTH


def histogram(contents: ReportContents) -> Picture | None:
    """Draw the negatives of all batches by their similarity; None if there are no negatives."""
    histograms = [plan.evaluation.similarity_histogram for plan in contents.plans]
    if not all(histograms):
        return None
    edges = np.array(histograms[0]["edges"])
    random = 100 * np.array(histograms[0]["random"])
    shares = [100 * np.array(histogram["plan"]) for histogram in histograms]
    labels = ["random batches", *names(contents)]
    columns = max(1, min(3, WIDTH // (max(map(len, labels)) * 7 + 42)))  # of the legend
    figure, axes = new_figure(208 + 16 * -(-len(labels) // columns))
    handles = [axes.stairs(random, edges, fill=True, color=RANDOM, alpha=0.45)]
    for own, colour, dashes in zip(shares, PLANS, DASHES, strict=False):
        ends = np.append(own, own[-1])
        handles += axes.plot(edges, ends, drawstyle="steps-post", color=colour, linestyle=dashes)
    axes.set_ylim(bottom=0)
    figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, handlelength=2.2,
        columnspacing=1.4, borderaxespad=0.2, labelspacing=0.35,
    )  # fmt: skip
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
        figure,
    )
