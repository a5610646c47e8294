"""GCBS: sparsify X Y^T at a quantile, then order the rows by reverse Cuthill-McKee.

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 5 and appendix J. Rows that are similar end up near each other
in the order, so that batches cut from it hold many hard negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.guard.options import GuardOptions, guard_of
from batchplan.options import option
from batchplan.planners.common.cut import cut
from batchplan.planners.common.options import PlannerOptions
from batchplan.planners.common.refine import PassOptions, refined

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class GcbsOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `gcbs`.

    Raises:
        InputError: as its bases; a quantile outside (0, 1), or neighbors below 1.
    """

    quantile: float = option(
        0.999, "Share of the N(N-1) off-diagonal similarities that is dropped."
    )
    neighbors: int | None = option(
        None, "Mean edges a row, instead of a quantile: the quantile is then 1 - neighbors/N."
    )
    reverse: bool = option(True, "Reverse Cuthill-McKee, or plain Cuthill-McKee.")

    def __post_init__(self) -> None:
        from batchplan.graph.budget import EdgeBudget

        super().__post_init__()
        EdgeBudget(self.quantile, self.neighbors)


def gcbs(embeddings: Embeddings, options: GcbsOptions, runtime: Runtime) -> Plan:
    """Plan by quantile sparsification and (reverse) Cuthill-McKee.

    Args:
        embeddings: N pairs of d dimensions; all work is O(N^2 d), all memory O(edges + N d).
        options: edge budget, order and batches.
        runtime: device, memory budget, seed (of shuffled batches only), progress.

    Returns:
        A plan that partitions the rows; its metrics are the number of ``edges``, their smallest
        similarity ``threshold`` and the ``edge_share`` of them that landed inside batches; where
        a guard kept rows apart, also the number of ``edges_dropped``, which are not among them.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.graph import EdgeBudget, build_graph, cuthill_mckee

    budget = EdgeBudget(options.quantile, options.neighbors)
    guard = guard_of(embeddings, options, runtime)
    weights = guard.ceilings is not None
    all_edges = build_graph(
        embeddings, budget, runtime, similarity=options.similarity, weights=weights
    )
    graph = all_edges.without(guard, embeddings, runtime, similarity=options.similarity)
    dropped = {"edges_dropped": all_edges.num_edges - graph.num_edges} if guard.active else {}
    with runtime.stage("order"):
        order = cuthill_mckee(graph.symmetrized(), reverse=options.reverse)
    plan = cut(order.cpu().numpy(), "gcbs", embeddings, options, runtime)
    plan = refined(plan, embeddings, options, runtime, guard)
    return plan.with_metrics(
        edges=graph.num_edges,
        threshold=graph.threshold,
        edge_share=graph.share_within(plan.first_batch_of_row()),
        **dropped,
    )
