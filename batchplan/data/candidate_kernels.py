"""Compiled work on lists of candidates."""

import numpy as np

from batchplan.kernels import njit


@njit
def among(indptr, indices, scores, rows, place):  # type: ignore[no-untyped-def]
    """The lists of ``rows``, int64 (n,), without candidates whose ``place``, int32 (N,), is -1, and
    renumbered by it: their ``indptr``, ``indices`` and ``scores``."""
    ends = np.zeros(rows.size + 1, np.int64)
    for k in range(rows.size):
        count = 0
        for e in range(indptr[rows[k]], indptr[rows[k] + 1]):
            count += place[indices[e]] >= 0
        ends[k + 1] = ends[k] + count
    found, values = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    for k in range(rows.size):
        at = ends[k]
        for e in range(indptr[rows[k]], indptr[rows[k] + 1]):
            if place[indices[e]] >= 0:
                found[at], values[at] = place[indices[e]], scores[e]
                at += 1
    return ends, found, values
