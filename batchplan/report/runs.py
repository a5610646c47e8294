"""How similar runs of rows are to each other: a matrix of similarities at any resolution.

The mean similarity of two runs is the product of their mean rows, so that a picture of all N x N
similarities costs no more than reading the rows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.rows import Side, spans

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_ROWS_AT_ONCE = 4096


def run_similarities(x: Side, y: Side, rows: Int64Array, starts: Int64Array) -> Float64Array:
    """The mean of x_i . y_j over the rows i of one run and the rows j of another.

    Where a run meets itself, entries do not meet themselves, unless it has only one.

    Args:
        x, y: the data.
        rows: int64 (entries,), row numbers.
        starts: int64 (runs + 1,), where each run starts in them, rising from 0 to entries.

    Returns:
        float64 (runs, runs).
    """
    sizes = torch.from_numpy(np.diff(starts)).to(x.device)
    run_of = torch.repeat_interleave(sizes)
    sums = [torch.zeros((len(sizes), x.dim), dtype=torch.float64, device=x.device) for _ in "xy"]
    own = torch.zeros(len(sizes), dtype=torch.float64, device=x.device)
    for start, stop in spans(len(rows), _ROWS_AT_ONCE):
        some = rows[start:stop].copy()  # torch warns about views that are read-only
        sides = [side.gather(some) for side in (x, y)]
        for total, side in zip(sums, sides, strict=True):
            total.index_add_(0, run_of[start:stop], side)
        own.index_add_(0, run_of[start:stop], torch.linalg.vecdot(*sides))
    means = (sums[0] / sizes[:, None]) @ (sums[1] / sizes[:, None]).T
    others = (sizes * (sizes - 1)).double()
    without_own = (torch.linalg.vecdot(*sums) - own) / others.clamp(min=1)
    means.diagonal().copy_(torch.where(sizes > 1, without_own, own))
    return means.cpu().numpy()
