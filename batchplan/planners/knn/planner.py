"""Batches of nearest neighbours: the kNN sampler, the hardest batches and the most false negatives.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, section 3: pick a row at random and make a batch of it and its nearest
neighbours. Here each row is used once, so that a batch takes the nearest that are left.
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
class KnnOptions(PassOptions, PlannerOptions):
    """Options of `knn`.

    Raises:
        InputError: as `PlannerOptions`; neighbors below 1.
    """

    neighbors: int = option(256, "Nearest neighbours kept of each row; at least the batch size.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbors < 1:
            raise InputError(f"neighbors: got {self.neighbors}, expected at least 1")


def knn(embeddings: Embeddings, options: KnnOptions, runtime: Runtime) -> Plan:
    """Plan by giving rows, in random order, their nearest rows that no batch holds yet.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work, 12 K N bytes of memory.
        options: K neighbours a row (N - 1 where that is less) and how to cut batches.
        runtime: device, memory budget, seed of the random order, progress.

    Returns:
        A plan that partitions the rows; its metric ``own_share`` is the share of places that went
        to a neighbour of the batch's first row.

    Raises:
        InputError: a batch size above N, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.graph import nearest_neighbors
    from batchplan.planners.knn.filling import fill

    n = embeddings.num_rows
    found = nearest_neighbors(
        embeddings, min(options.neighbors, n - 1), runtime, similarity=options.similarity
    )
    starts = runtime.generator().permutation(n)
    with runtime.stage("assign"):
        order, own = fill(found.indices, found.similarities, starts, options.rows_per_batch)
    places = n - -(-n // options.rows_per_batch)
    plan = cut(order, "knn", embeddings, options, runtime)
    plan = refined(plan, embeddings, options, runtime)
    return plan.with_metrics(own_share=own / places if places else 1.0)
