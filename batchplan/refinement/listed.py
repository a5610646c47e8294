"""The similarities of blocks from mined lists instead of vectors."""

import numpy as np
from numpy.typing import NDArray

from batchplan.data.candidates import Candidates
from batchplan.kernels import njit
from batchplan.typing import Float32Array


def listed_similarities(
    lists: Candidates, members: NDArray[np.int64]
) -> tuple[Float32Array, Float32Array]:
    """The similarities of the rows (blocks, m) of each block.

    Returns:
        float32 (blocks, 2, m, m): from x to y the scores of listed rows, and for others the floor
        of the list; from y to x nothing but the own pair. And float32 (blocks, m, m), the scores
        of listed rows, -inf for others, of which no guard knows.
    """
    count, m = members.shape
    similarities = np.empty((count, 2, m, m), np.float32)
    listed = np.empty((count, m, m), np.float32)
    own = lists.indptr, lists.indices, lists.scores, lists.positive, lists.floors
    _look_up(own, members, similarities, listed)
    return similarities, listed


@njit
def _look_up(lists, members, similarities, listed):  # type: ignore[no-untyped-def]
    indptr, indices, scores, positive, floors = lists
    m = members.shape[1]
    bits = 2
    while (1 << bits) < 4 * m:
        bits += 1
    names, places = np.empty(1 << bits, np.int32), np.empty(1 << bits, np.int32)
    for block in range(len(members)):
        rows, forth, back = members[block], similarities[block, 0], similarities[block, 1]
        names[:] = -1
        for i in range(m):
            slot = _slot(rows[i], names, bits)
            names[slot], places[slot] = rows[i], i
        back[:] = -np.inf
        listed[block] = -np.inf
        for i in range(m):
            row = rows[i]
            forth[i] = floors[row]
            for e in range(indptr[row], indptr[row + 1]):
                slot = _slot(np.int64(indices[e]), names, bits)
                if names[slot] >= 0:
                    forth[i, places[slot]] = scores[e]
                    listed[block, i, places[slot]] = scores[e]
            forth[i, i] = back[i, i] = listed[block, i, i] = positive[row]


@njit
def _slot(row, names, bits):  # type: ignore[no-untyped-def]
    """Where a row is in a hash table of a block, or the free slot that it would have; a table of a
    few kilobytes stays in the cache, which one place for each of N rows would not."""
    slot = ((np.int64(row) * 2654435769) & 0xFFFFFFFF) >> (32 - bits)
    while names[slot] >= 0 and names[slot] != row:
        slot = (slot + 1) & ((1 << bits) - 1)
    return slot
