"""Batches of nearest neighbours: the kNN sampler, the hardest batches and the most false negatives.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, section 3: a batch is a random row and its nearest neighbours. Here each row is
used once, so that a batch takes the nearest rows that are left.
"""

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.planners.common.draft import Draft
from batchplan.planners.knn.filling import fill
from batchplan.planners.knn.options import KnnOptions
from batchplan.runtime import Runtime


def knn(embeddings: Embeddings, options: KnnOptions, runtime: Runtime) -> Draft:
    """Plan by grouping rows, in random order, with the nearest rows that are left.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work, 12 K N bytes of memory.
        options: K neighbours per row (at most N - 1), and how to cut batches.
        runtime: device, memory budget, seed of the random order, progress.

    Returns:
        An order of the rows. The plan's metric ``own_share`` is the share of rows that are
        neighbours of the first row of their batch.

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
