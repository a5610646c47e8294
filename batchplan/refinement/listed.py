"""The similarities of blocks from mined lists instead of vectors."""

import numpy as np
from numpy.typing import NDArray

from batchplan.data.candidates import Candidates
from batchplan.kernels import njit

Float32Array = NDArray[np.float32]


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
    place = np.full(positive.size, -1, np.int32)
    for block in range(len(members)):
        rows, forth, back = members[block], similarities[block, 0], similarities[block, 1]
        for i in range(rows.size):
            place[rows[i]] = i
        back[:] = -np.inf
        listed[block] = -np.inf
        for i in range(rows.size):
            row = rows[i]
            forth[i] = floors[row]
            for e in range(indptr[row], indptr[row + 1]):
                if place[indices[e]] >= 0:
                    forth[i, place[indices[e]]] = scores[e]
                    listed[block, i, place[indices[e]]] = scores[e]
            forth[i, i] = back[i, i] = listed[block, i, i] = positive[row]
        for i in range(rows.size):
            place[rows[i]] = -1
