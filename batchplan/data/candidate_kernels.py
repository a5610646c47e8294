"""Compiled work on lists of candidates."""

import numpy as np

from batchplan.kernels import njit


@njit
def lengths_among(indptr, indices, rows, place):  # type: ignore[no-untyped-def]
    """int64 (n + 1,): the start of the list of each of ``rows``, int64 (n,), and the end.

    Candidates are left out if their ``place``, int32 (N,), is -1.
    """
    ends = np.zeros(rows.size + 1, np.int64)
    for k in range(rows.size):
        count = 0
        for e in range(indptr[rows[k]], indptr[rows[k] + 1]):
            count += place[indices[e]] >= 0
        ends[k + 1] = ends[k] + count
    return ends


@njit
def fill_among(lists, rows, place, found, values):  # type: ignore[no-untyped-def]
    """Write the candidates that `lengths_among` counts, as their places, and their scores."""
    indptr, indices, scores = lists
    at = 0
    for row in rows:
        for e in range(indptr[row], indptr[row + 1]):
            if place[indices[e]] >= 0:
                found[at], values[at] = place[indices[e]], scores[e]
                at += 1
