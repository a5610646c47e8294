"""Batches that are clusters of k-means with N/B centres, balanced to exact batch sizes.

A baseline: the batch of a row depends on its region of space, not on its neighbours. The points are
the means of the two (normalised) sides of each pair.
"""

from batchplan.data import Embeddings
from batchplan.planners.cluster.kmeans import balanced_order
from batchplan.planners.cluster.options import ClusterOptions
from batchplan.planners.common.draft import Draft
from batchplan.runtime import Runtime


def cluster(embeddings: Embeddings, options: ClusterOptions, runtime: Runtime) -> Draft:
    """Plan by balanced k-means.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d / B) work per iteration.
        options: iterations, and how to cut batches.
        runtime: device, memory budget, seed of the first centres, progress.

    Returns:
        An order of the rows. The plan's metrics are the ``inertia``, the mean squared distance of a
        row to the centre of its batch; ``unbalanced_inertia``, the same before balancing; and the
        number of ``iterations``.

    Raises:
        InputError: a batch size above N, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    order, facts = balanced_order(
        embeddings,
        options.rows_per_batch,
        runtime,
        similarity=options.similarity,
        iterations=options.iterations,
    )
    return Draft(rows=order, facts=facts)
