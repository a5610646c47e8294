"""Batches that are clusters: k-means with N/B centres, then balanced to exact batch sizes.

A baseline: the batch of a row is the region of space that it lies in, not its neighbours. The
points are the means of the (normalised) two sides of each pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.planners.common.cut import cut
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.common.refine import PassOptions, refined

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(PassOptions, PlannerOptions):
    """Options of `cluster`.

    Raises:
        InputError: as `PlannerOptions`; iterations below 0.
    """

    iterations: int = option(10, "Most iterations of k-means; it stops when no row moves.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < 0:
            raise InputError(f"iterations: got {self.iterations}, expected 0 or more")


def cluster(embeddings: Embeddings, options: ClusterOptions, runtime: Runtime) -> Plan:
    """Plan by balanced k-means.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d / B) work an iteration.
        options: iterations, and how to cut batches.
        runtime: device, memory budget, seed of the first centres, progress.

    Returns:
        A plan that partitions the rows; its metrics are the ``inertia``, the mean squared distance
        of a row to the centre of its batch, that of k-means before balancing
        (``unbalanced_inertia``) and the ``iterations`` made.

    Raises:
        InputError: a batch size above N, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.planners.cluster.kmeans import balanced_order

    made = balanced_order(
        embeddings,
        options.rows_per_batch,
        runtime,
        similarity=options.similarity,
        iterations=options.iterations,
    )
    plan = cut(made.order, "cluster", embeddings, options, runtime)
    plan = refined(plan, embeddings, options, runtime)
    return plan.with_metrics(
        inertia=made.inertia,
        unbalanced_inertia=made.unbalanced_inertia,
        iterations=made.iterations,
    )
