"""The kNN sampler: batches of nearest neighbours, which are hard and full of false negatives.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, section 3: a batch is a random row and its nearest neighbours. Here each row is
used once, so a batch takes the nearest rows that are left.
"""

import numpy as np

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.kernels import njit
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.knn.options import KnnOptions
from batchplan.runtime import Runtime


def knn(embeddings: Embeddings, options: KnnOptions, runtime: Runtime) -> Draft:
    """Plan by grouping rows, in random order, with the nearest rows that are left.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work, 12 K N bytes of memory.
        options: K neighbours per row (at most N - 1), and how to cut batches.
        runtime: device, memory budget, seed of the random order, progress.

    Returns:
        An order of the rows.

    Raises:
        InputError: a batch size above N, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    n = embeddings.num_rows
    nearest = nearest_neighbors(
        embeddings, min(options.neighbors, n - 1), runtime, similarity=options.similarity
    )
    starts = runtime.generator().permutation(n)
    with runtime.stage("assign"):
        order = fill(nearest.indices, nearest.similarities, starts, options.rows_per_batch)
    return Draft(rows=order)


@njit
def fill(indices, similarities, starts, batch_size):  # type: ignore[no-untyped-def]
    """Return the rows, batch after batch.

    Args:
        indices, similarities: (N, K) of `Neighbors`.
        starts: int64 (N,), a permutation.
        batch_size: B.

    A batch starts with the first row of ``starts`` that is left, and takes its neighbours, nearest
    first. Then it takes, one by one, the neighbour most similar to any row of the batch; of equal
    ones, the neighbour of the earliest row. If there is none, it takes the next row of ``starts``.
    """
    n, k = indices.shape
    order = np.empty(n, np.int64)
    taken = np.zeros(n, np.bool_)
    place = np.zeros(n, np.int64)  # the first neighbour of each row that may not be taken
    begin = filled = following = 0
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
                if member == begin:  # neighbours of the first row come before all others
                    break
        if chosen < 0:
            while taken[starts[following]]:
                following += 1
            chosen = starts[following]
        order[filled] = chosen
        taken[chosen] = True
        filled += 1
    return order
