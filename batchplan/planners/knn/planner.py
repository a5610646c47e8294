"""Batches of nearest neighbours: the kNN sampler, the hardest batches and the most false negatives.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, section 3: pick a row at random and make a batch of it and its nearest
neighbours. Here each row is used once, so that a batch takes the nearest that are left.
"""

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.planners.common.draft import Draft
from batchplan.planners.knn.filling import fill
from batchplan.planners.knn.options import KnnOptions
from batchplan.runtime import Runtime


def knn(embeddings: Embeddings, options: KnnOptions, runtime: Runtime) -> Draft:
    """Plan by giving rows, in random order, their nearest rows that no batch holds yet.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work, 12 K N bytes of memory.
        options: K neighbours a row (N - 1 where that is less) and how to cut batches.
        runtime: device, memory budget, seed of the random order, progress.

    Returns:
        An order of the rows; the plan's metric ``own_share`` is the share of places that went
        to a neighbour of the batch's first row.

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
        order, own = fill(nearest.indices, nearest.similarities, starts, options.rows_per_batch)
    places = n - -(-n // options.rows_per_batch)
    return Draft(rows=order, facts={"own_share": own / places if places else 1.0})
