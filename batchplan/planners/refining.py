"""What a plan goes through once its batches are cut: rows that must not meet are moved apart, and
swaps between batches raise the loss, if asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import check_temperature, option
from batchplan.planners.options import SimilarityOptions

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.graph.guard import Guard
    from batchplan.plans import Plan
    from batchplan.refinement import Objective, Passes
    from batchplan.runtime import Runtime

NEIGHBORS = 16  # of each row and side: enough to tell which batches have rows to exchange


@dataclass(frozen=True, kw_only=True)
class RefineOptions(SimilarityOptions):
    """The options of planners whose batches can be refined.

    Raises:
        InputError: fewer than 0 passes, or a temperature out of range.
    """

    refine: int = option(0, "Passes of swaps between batches that raise the training loss.")
    temperature: float = option(0.05, "tau of the NT-Xent loss.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        if self.refine < 0:
            raise InputError(f"refine: got {self.refine}, expected 0 passes or more")


def refined(
    plan: Plan,
    embeddings: Embeddings,
    options: RefineOptions,
    runtime: Runtime,
    guard: Guard | None = None,
) -> Plan:
    """The plan of a planner after ``options.refine`` passes, with rows kept apart as ``guard``
    says; see `improved`."""
    from batchplan.graph.guard import Guard
    from batchplan.refinement import Passes, make_objective

    guard = guard or Guard()
    if not guard.active and not options.refine:
        return plan
    objective = make_objective(
        embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
        guard=guard, price=getattr(options, "guard_price", None),
    )  # fmt: skip
    passes = Passes(most=options.refine)
    return improved(plan, embeddings, objective, runtime, passes, options.similarity)


def improved(
    plan: Plan,
    embeddings: Embeddings,
    objective: Objective,
    runtime: Runtime,
    passes: Passes,
    similarity: str,
    neighbors: int = NEIGHBORS,
) -> Plan:
    """The plan after some passes, and with rows moved apart that break the guard.

    Its metrics tell how many ``passes`` were made, and by how much they raised the mean loss, in
    nats (``refine_gain``); and, with a guard, how many pairs break it still (``broken_pairs``).
    """
    from batchplan.graph.affinity import affinity_graph, neighbor_lists
    from batchplan.refinement import refine_rows, repair_rows

    rows, offsets = plan.rows, plan.batch_offsets
    facts: dict[str, float] = {}
    if passes.most:
        lists = neighbor_lists(
            embeddings, neighbors, runtime, similarity=similarity, guard=objective.guard
        )
        affinity = affinity_graph(
            lists, objective.x, objective.y, runtime, batch_size=plan.batch_size,
            temperature=objective.temperature,
        )  # fmt: skip
        made = refine_rows(rows, offsets, objective, affinity, runtime, passes)
        rows = made.rows
        facts = {"passes": made.passes, "refine_gain": made.gain / (2 * len(rows))}
    if objective.guard.active:
        rows, facts["broken_pairs"] = repair_rows(rows, offsets, objective, runtime)
    return replace(plan, rows=rows).with_metrics(**facts)
