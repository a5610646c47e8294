"""Fills the batches of `knn` row by row, in N K compiled steps."""

import numpy as np

from batchplan.kernels import njit


@njit
def fill(indices, similarities, starts, batch_size):  # type: ignore[no-untyped-def]
    """The rows in the order of their batches, and how many are neighbours of the first row.

    Args:
        indices, similarities: (N, K) of `batchplan.graph.Neighbors`.
        starts: int64 (N,), a permutation.
        batch_size: B.

    A batch starts with the first row of ``starts`` that is left. It takes the neighbours of that
    row, nearest first; then, one by one, the neighbour most similar to any row of the batch (of
    equal ones, that of the earliest row); then the next rows of ``starts``.
    """
    n, k = indices.shape
    order = np.empty(n, np.int64)
    taken = np.zeros(n, np.bool_)
    place = np.zeros(n, np.int64)  # neighbours of each row that are known to be taken
    begin = filled = following = own = 0
    while filled < n:
        size = filled - begin
        if size == batch_size:
            begin, size = filled, 0
        chosen, nearest = -1, -np.inf
        for member in range(begin, filled):
            row = order[member]
            while place[row] < k and taken[indices[row, place[row]]]:
                place[row] += 1
            if place[row] < k:
                if chosen < 0 or similarities[row, place[row]] > nearest:
                    nearest = similarities[row, place[row]]
                    chosen = indices[row, place[row]]
                if member == begin:  # the first row's own neighbours go before all others
                    own += 1
                    break
        if chosen < 0:
            while taken[starts[following]]:
                following += 1
            chosen = starts[following]
        order[filled] = chosen
        taken[chosen] = True
        filled += 1
    return order, own
