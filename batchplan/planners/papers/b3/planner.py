"""B3: batches of random clusters of rows that are near each other, but not nearest.

Thirukovalluru et al., "Breaking the Batch Barrier (B3) of Contrastive Learning via Smart Batch
Mining", NeurIPS 2025, arXiv 2505.11293. Each row is linked with the rows y of ranks p to p + m by
similarity, if the link goes both ways. This graph is cut into clusters of K rows (the paper uses
METIS), and each batch of B rows combines B / K random clusters. The shared negatives of B3++ are
left out.
"""

import numpy as np

from batchplan.data import Embeddings
from batchplan.graph.affinity import Affinity
from batchplan.graph.csr import square
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.graph.parts import parts_of
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.b3.options import B3Options
from batchplan.runtime import IN_PARTS, Runtime
from batchplan.typing import Int64Array

_CLUSTERS = 7  # the generator stream that deals clusters to batches
_BYTES = 60  # per linked row: both directions, and the clusters


def b3(embeddings: Embeddings, options: B3Options, runtime: Runtime) -> Draft:
    """Plan by clusters of rows that are in each other's window of neighbours.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work, 12 N (p + m) + 60 N m bytes.
        options: p, m, K and how to cut batches.
        runtime: device (of the neighbours), memory budget, seed, progress.

    Returns:
        The rows, batch after batch. If the size of a batch is not a multiple of K, the batch also
        has a smaller cluster. The plan's metric ``edges`` is the number of links.

    Raises:
        InputError: a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    n, size = embeddings.num_rows, options.rows_per_batch
    graph = mutual_windows(embeddings, options, runtime)
    sizes = np.diff(np.append(np.arange(0, n, size), n))
    clusters, batch_of_cluster = clusters_of(
        sizes, options.cluster_size, runtime.generator(_CLUSTERS)
    )
    labels = np.zeros(n, np.int64)
    if len(clusters) > 1:
        with runtime.stage("partition"):
            labels = parts_of(graph, clusters, runtime)
    order = np.argsort(batch_of_cluster[labels], kind="stable")
    return Draft(rows=order, facts={"edges": len(graph.indices) // 2})


def mutual_windows(embeddings: Embeddings, options: B3Options, runtime: Runtime) -> Affinity:
    """Link rows i and j if y_j has a rank from p to p + m by its similarity to x_i, and y_i by its
    similarity to x_j. All links have the same weight.

    Raises:
        ResourceError: the links do not fit into the memory budget.
    """
    n, skipped = embeddings.num_rows, options.skip_nearest
    last = min(skipped + options.neighbors, n - 1)
    nearest = nearest_neighbors(embeddings, last, runtime, similarity=options.similarity)
    window = np.sort(nearest.indices[:, skipped:], axis=1)
    runtime.require_memory(_BYTES * window.size, f"b3: {window.shape[1]} neighbours", IN_PARTS)
    indptr = np.arange(n + 1) * window.shape[1]
    ahead = square(indptr, window.ravel(), np.ones(window.size, np.float32))
    both = ahead.multiply(ahead.T.tocsr()).tocsr()
    both.sort_indices()
    indices = both.indices.astype(window.dtype, copy=False)
    return Affinity(both.indptr.astype(np.int64, copy=False), indices, both.data)


def clusters_of(
    sizes: Int64Array, cluster_size: int, generator: np.random.Generator
) -> tuple[Int64Array, Int64Array]:
    """Deal clusters to batches at random.

    Args:
        sizes: int64 (P,), rows of the batches.
        cluster_size: K. The rows of a batch beyond whole clusters are one smaller cluster.
        generator: draws the batch of each cluster.

    Returns:
        int64 (C,), rows of each cluster, falling, and int64 (C,), the batch of each.
    """
    whole, rest = np.divmod(sizes, cluster_size)
    dealt = generator.permutation(np.repeat(np.arange(len(sizes)), whole))
    batches = np.concatenate([dealt, np.flatnonzero(rest)])
    clusters = np.concatenate([np.full(len(dealt), cluster_size), rest[rest > 0]])
    order = np.argsort(-clusters, kind="stable")
    return clusters[order], batches[order]
