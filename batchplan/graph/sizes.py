"""Parts of roughly the right sizes -> parts of exactly the right sizes."""

import numpy as np
from numpy.typing import NDArray

from batchplan.graph.affinity import Affinity
from batchplan.kernels import njit
from batchplan.typing import Int64Array


def fit_sizes(
    affinity: Affinity, parts: Int64Array, kinds: Int64Array, sizes: Int64Array
) -> Int64Array:
    """Move rows until part p holds ``sizes[k, p]`` rows of each kind k.

    A part with surplus rows gives up those with the least weight to its other rows, the higher row
    first among equals. These move in falling order of total weight, each to the part with room that
    it has most weight to, else to the part with the most room, the lower part first among equals.

    Args:
        affinity: the graph of N rows.
        parts: int64 (N,), of 0 to P - 1.
        kinds: int64 (N,), of 0 to K - 1.
        sizes: int64 (K, P); row k adds up to the rows of kind k.
    """
    parts = parts.copy()
    held = _weight_inside(affinity.indptr, affinity.indices, affinity.weights, parts)
    order = np.lexsort((np.arange(len(parts)), -held, kinds, parts))
    cells = parts[order] * len(sizes) + kinds[order]
    places = np.arange(len(parts)) - np.searchsorted(cells, cells)
    extra = order[places >= sizes[kinds[order], parts[order]]]
    moving = extra[np.lexsort((extra, -_reach(affinity, extra)))]
    counts = np.zeros(sizes.shape, np.int64)
    np.add.at(counts, (kinds, parts), 1)
    parts[moving] = -1
    room = np.maximum(sizes - counts, 0)
    settle(affinity.indptr, affinity.indices, affinity.weights, parts, kinds, room, moving)
    return parts


def _reach(affinity: Affinity, rows: Int64Array) -> NDArray[np.float64]:
    """The weight of all edges of each row."""
    ends = np.concatenate([[0.0], np.cumsum(affinity.weights, dtype=np.float64)])
    reach: NDArray[np.float64] = ends[affinity.indptr[rows + 1]] - ends[affinity.indptr[rows]]
    return reach


@njit
def _weight_inside(indptr, indices, weights, parts):  # type: ignore[no-untyped-def]
    inside = np.zeros(parts.size)
    for i in range(parts.size):
        for e in range(indptr[i], indptr[i + 1]):
            if parts[indices[e]] == parts[i]:
                inside[i] += weights[e]
    return inside


@njit
def settle(indptr, indices, weights, parts, kinds, room, moving):  # type: ignore[no-untyped-def]
    """Give rows without a part, in their order, the part with room to which they have most weight,
    else the one with the most room, the lower part first among equals.

    Args:
        indptr, indices, weights: as of an `Affinity`.
        parts: int32 or int64 (N,), -1 for none, changed in place.
        kinds: int64 (N,).
        room: int64 (K, P), free places for rows of each kind, changed in place.
        moving: int64 (n,), the rows.
    """
    pull = np.zeros(room.shape[1])
    for i in moving:
        free = room[kinds[i]]
        chosen = -1
        for e in range(indptr[i], indptr[i + 1]):
            part = parts[indices[e]]
            if part >= 0 and free[part] > 0:
                pull[part] += weights[e]
                if chosen < 0 or (pull[part], -part) > (pull[chosen], -chosen):
                    chosen = part
        for e in range(indptr[i], indptr[i + 1]):
            if parts[indices[e]] >= 0:
                pull[parts[indices[e]]] = 0
        if chosen < 0:
            chosen = int(np.argmax(free))
        parts[i] = chosen
        free[chosen] -= 1
