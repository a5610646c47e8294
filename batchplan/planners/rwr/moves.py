"""The moves of a walk: from a row to one of its neighbours, uniformly or by weight.

``graph`` and ``weights`` are those of a `Walker` in `batchplan.planners.rwr.walks`.
"""

import numpy as np

from batchplan.kernels import njit


@njit
def degree(row, graph):  # type: ignore[no-untyped-def]
    """The number of neighbours of a row, nearly always K."""
    k = graph.shape[1]
    while k and graph[row, k - 1] < 0:
        k -= 1
    return k


@njit
def move(row, graph, weights, draw):  # type: ignore[no-untyped-def]
    """The neighbour drawn by a number in [0, 1); the row itself if it has none."""
    k = degree(row, graph)
    if k == 0:
        return row
    if weights.size == 0 or weights[row, k - 1] <= 0:
        return np.int64(graph[row, np.int64(draw * k)])
    sums = weights[row]
    target = draw * np.float64(sums[k - 1])
    low, high = 0, k - 1
    while low < high:  # find the first sum above the target
        middle = (low + high) // 2
        if sums[middle] > target:
            high = middle
        else:
            low = middle + 1
    return np.int64(graph[row, low])


@njit
def pick_new(row, graph, weights, draw, used):  # type: ignore[no-untyped-def]
    """An unused neighbour of the row, drawn by a number in [0, 1); -1 if there is none."""
    k = degree(row, graph)
    new, total = 0, 0.0
    for c in range(k):
        if not used[graph[row, c]]:
            new += 1
            if weights.size:
                total += weights[row, c] - (weights[row, c - 1] if c else np.float32(0))
    even = total <= 0
    target = draw * (new if even else total)
    last = np.int64(-1)
    for c in range(k):
        if not used[graph[row, c]]:
            weight = 1.0
            if not even:
                weight = weights[row, c] - (weights[row, c - 1] if c else np.float32(0))
            if weight > 0:
                last = np.int64(graph[row, c])
                target -= weight
                if target < 0:
                    break
    return last  # the last one, if rounding leaves a little of ``target``
