"""Draws the similarities of an order of rows, as a whole and close up (GCBS, figure 1)."""

from collections.abc import Iterator

import matplotlib
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from batchplan.report.contents import ReportContents
from batchplan.report.figures.common import Picture
from batchplan.report.palette import COLOURS, WIDTH
from batchplan.report.similarities import Similarities

_HEIGHT = 231
_SHADES = 64  # fewer than 256 compress better, and look the same
_OVERVIEW_ENDS = 0.5, 99.8  # percentiles that the shades span
_ZOOM_ENDS = 5, 99.5
SIMILARITY_TEXT = (
    "Rows of both sides in the order of training; brighter is more similar, and all orders share "
    "the same shades. Left, the whole epoch: each cell "
    "is the mean similarity between the rows of a batch, or of a few in a row, and the rows of "
    "others; the diagonal is within batches (own pairs excluded). Right, batches in the middle of "
    "the epoch, close up, with a frame around each: training sees only the pairs inside a frame. "
    "The original order is cut in the same way."
)


def similarity_pictures(contents: ReportContents) -> Iterator[Picture]:
    """Draw the original order, a random one and each plan, in the same shades."""
    orders = [
        ("original", "Original order", "the rows as they are stored", contents.original),
        ("random", "Random order", "what training does without a plan", contents.shuffled),
        *(
            (str(number), plan.name, plan.planner, plan.similarities)
            for number, plan in enumerate(contents.plans, start=1)
        ),
    ]
    shades = (
        _shades([shown.overview for *_, shown in orders], _OVERVIEW_ENDS),
        _shades([shown.zoom for *_, shown in orders], _ZOOM_ENDS),
    )
    for name, title, caption, shown in orders:
        inside = np.diagonal(shown.overview).mean()
        yield Picture(
            f"similarity-{name}",
            title,
            caption,
            f"{title}: mean similarity {inside:.3f} on the diagonal of the overview, "
            f"{shown.overview.mean():.3f} everywhere.",
            _draw(shown, shades),
        )


def _shades(pictures: list[NDArray[np.float64]], ends: tuple[float, float]) -> Normalize:
    values = np.concatenate([picture.ravel() for picture in pictures])
    low, high = np.percentile(values, ends)
    return Normalize(low, high if high > low else low + 1e-9)


def _draw(shown: Similarities, shades: tuple[Normalize, Normalize]) -> Figure:
    colours = matplotlib.colormaps["viridis"].resampled(_SHADES)
    figure = Figure(figsize=(WIDTH / 72, _HEIGHT / 72))
    panel, label = 157, 15
    zoomed = "rows {:,} to {:,}".format(*shown.zoom_rows)
    for left, matrix, norm, title in (
        (label, shown.overview, shades[0], "whole epoch"),
        (WIDTH - panel, shown.zoom, shades[1], zoomed),
    ):
        x, width = (left + 1) / WIDTH, (panel - 2) / WIDTH
        box = (x, 55 / _HEIGHT, width, (panel - 2) / _HEIGHT)
        axes = figure.add_axes(box)
        axes.set(frame_on=False, xticks=[], yticks=[])
        axes.set_title(title, loc="left", pad=5)
        axes.set_xlabel("y, in training order", labelpad=3)
        if matrix is shown.overview:  # once for both panels
            axes.set_ylabel("x, in training order", labelpad=3)
        image = axes.imshow(matrix, cmap=colours, norm=norm, interpolation="none", aspect="auto")
        bar = figure.add_axes((x, 24 / _HEIGHT, width, 8 / _HEIGHT))
        figure.colorbar(image, cax=bar, orientation="horizontal", extend="neither")
        low, high = norm.vmin or 0.0, norm.vmax or 0.0
        bar.set_xticks([low, high], [f"≤ {low:.2f}", f"≥ {high:.2f}"])
        first, last = bar.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
        bar.set_xlabel("similarity", labelpad=-10)
        if matrix is shown.zoom:
            for start, stop in zip(shown.zoom_edges[:-1], shown.zoom_edges[1:], strict=True):
                side = stop - start - 1  # within the batch's cells: frames do not touch
                frame = Rectangle((start, start), side, side, fill=False)
                frame.set(edgecolor=COLOURS["frame"], linewidth=1.0)
                axes.add_patch(frame)
    return figure
