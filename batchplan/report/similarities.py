"""Computes mean similarities within an order of rows, at any resolution.

The mean similarity of two runs of rows is the product of their mean rows, so that a picture of all
N x N similarities costs no more than reading the rows.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from batchplan.quality.rows import MeasuredRows, spans
from batchplan.typing import Float64Array, Int64Array

_ROWS_AT_ONCE = 4096
_OVERVIEW = 96  # cells per side, at most
_ZOOM = 256  # the same, of the close-up
_ZOOM_BATCHES = 8, 2  # at most, and at least if the plan has that many


@dataclass(frozen=True, eq=False)
class Similarities:
    """Two pictures of the similarities of an order of rows.

    Attributes:
        overview: float64 (cells, cells), the mean similarities between runs of batches, which
            together are all batches.
        zoom: float64 (cells, cells), the mean similarities between rows of batches in the middle.
        zoom_edges: int64 (batches + 1,), the cell at which each batch of the zoom starts.
        zoom_rows: the places in the order of the first row of the zoom and of its last.
    """

    overview: Float64Array
    zoom: Float64Array
    zoom_edges: Int64Array
    zoom_rows: tuple[int, int]


def similarities(
    x: MeasuredRows, y: MeasuredRows, rows: Int64Array, offsets: Int64Array
) -> Similarities:
    """Measure ``rows``, int64 (entries,), cut into batches at ``offsets``."""
    batches = len(offsets) - 1
    a_cell = -(-batches // _OVERVIEW)
    overview = np.append(offsets[:-1:a_cell], offsets[-1])
    most, least = _ZOOM_BATCHES
    largest = int(np.diff(offsets).max())
    count = min(batches, max(least, min(most, _ZOOM // largest)))
    first = (batches - count) // 2
    zoomed = offsets[first : first + count + 1]
    step = -(-int(zoomed[-1] - zoomed[0]) // _ZOOM)
    cells = [np.arange(*ends, step) for ends in pairwise(zoomed)]
    starts = np.append(np.concatenate(cells), zoomed[-1])
    return Similarities(
        overview=run_similarities(x, y, rows, overview),
        zoom=run_similarities(x, y, rows[zoomed[0] : zoomed[-1]], starts - zoomed[0]),
        zoom_edges=np.cumsum([0, *map(len, cells)]),
        zoom_rows=(int(zoomed[0]), int(zoomed[-1]) - 1),
    )


def run_similarities(
    x: MeasuredRows, y: MeasuredRows, rows: Int64Array, starts: Int64Array
) -> Float64Array:
    """Return the mean of x_i . y_j over the rows i of one run and the rows j of another.

    Within a run, pairs of an entry with itself are left out, unless the run has only one entry.

    Args:
        x, y: the data.
        rows: int64 (entries,), row numbers.
        starts: int64 (runs + 1,), where each run starts in ``rows``, rising from 0 to entries.

    Returns:
        float64 (runs, runs).
    """
    sizes = torch.from_numpy(np.diff(starts)).to(x.device)
    run_of = torch.repeat_interleave(sizes)
    sums = [torch.zeros((len(sizes), x.dim), dtype=torch.float64, device=x.device) for _ in "xy"]
    own = torch.zeros(len(sizes), dtype=torch.float64, device=x.device)
    for start, stop in spans(len(rows), _ROWS_AT_ONCE):
        block = rows[start:stop].copy()  # torch warns about read-only views
        sides = [side.gather(block) for side in (x, y)]
        for total, side in zip(sums, sides, strict=True):
            total.index_add_(0, run_of[start:stop], side)
        own.index_add_(0, run_of[start:stop], torch.linalg.vecdot(*sides))
    means = (sums[0] / sizes[:, None]) @ (sums[1] / sizes[:, None]).T
    others = (sizes * (sizes - 1)).double()
    without_own = (torch.linalg.vecdot(*sums) - own) / others.clamp(min=1)
    means.diagonal().copy_(torch.where(sizes > 1, without_own, own))
    return means.cpu().numpy()
