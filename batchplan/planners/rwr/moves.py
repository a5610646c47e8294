"""Where a walk goes from a row: to one of its neighbours, as likely as each other or by weight.

``graph`` and ``weights`` are those of a `Walker` in `batchplan.planners.rwr.walks`.
"""

import numpy as np

from batchplan.kernels import njit


@njit
def degree(row, graph):  # type: ignore[no-untyped-def]
    """How many neighbours a row has: nearly always all K."""
    k = graph.shape[1]
    while k and graph[row, k - 1] < 0:
        k -= 1
    return k


@njit
def move(row, graph, weights, draw):  # type: ignore[no-untyped-def]
    """The neighbour that a walk goes to, by a number in [0, 1); the row itself if it has none."""
    k = degree(row, graph)
    if k == 0:
        return row
    if weights.size == 0 or weights[row, k - 1] <= 0:
        return np.int64(graph[row, np.int64(draw * k)])
    sums = weights[row]
    wanted = draw * np.float64(sums[k - 1])
    low, high = 0, k - 1
    while low < high:  # the first sum above what is wanted
        middle = (low + high) // 2
        if sums[middle] > wanted:
            high = middle
        else:
            low = middle + 1
    return np.int64(graph[row, low])


@njit
def pick_new(row, graph, weights, draw, used):  # type: ignore[no-untyped-def]
    """A neighbour of the row that is not used, by a number in [0, 1); -1 if there is none."""
    k = degree(row, graph)
    new, total = 0, 0.0
    for c in range(k):
        if not used[graph[row, c]]:
            new += 1
            if weights.size:
                total += weights[row, c] - (weights[row, c - 1] if c else np.float32(0))
    even = total <= 0
    wanted = draw * (new if even else total)
    last = np.int64(-1)
    for c in range(k):
        if not used[graph[row, c]]:
            weight = 1.0
            if not even:
                weight = weights[row, c] - (weights[row, c - 1] if c else np.float32(0))
            if weight > 0:
                last = np.int64(graph[row, c])
                wanted -= weight
                if wanted < 0:
                    break
    return last  # rounding may leave a little of ``wanted``: then it is the last one
