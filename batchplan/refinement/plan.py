"""`refine`: swaps between the batches of any plan that raise the loss seen in training."""

from dataclasses import asdict, replace
from typing import Any

from batchplan.data import Embeddings
from batchplan.data.labels import source_codes
from batchplan.graph.affinity import affinity_graph, neighbor_lists
from batchplan.guard.guard import guard_of
from batchplan.options import check_names
from batchplan.plans.metadata import library_versions, rows_digest
from batchplan.plans.plan import Plan
from batchplan.refinement.objective import Objective, make_objective
from batchplan.refinement.options import NEIGHBORS, RefineOptions
from batchplan.refinement.passes import Passes, refine_rows
from batchplan.refinement.repair import repair_rows
from batchplan.runtime import Observer, Runtime


def refine(
    plan: Plan,
    embeddings: Embeddings,
    *,
    seed: int = 0,
    device: str = "auto",
    memory: int | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Plan:
    """Raise the training loss of a plan by swaps between its batches; it never falls.

    Args:
        plan: of any planner, and of as many rows; the rows may have been embedded again since.
        embeddings: N pairs.
        seed, device, memory, observer: see `Runtime`; the device finds neighbours only.
        options: fields of `RefineOptions`: ``passes``, ``temperature``, guards and others.

    Returns:
        A plan of the same batches sizes, each in its place. Its metrics are those of `partition`.

    Raises:
        InputError: an unknown option or one out of range, a plan of other data, or files that were
            written to meanwhile.
        ResourceError: not enough memory, or no such device.
    """
    check_names(options, RefineOptions, "refine")
    runtime = Runtime(device, memory, seed, observer)
    return refine_plan(plan, embeddings, RefineOptions(**options), runtime)


def refine_plan(
    plan: Plan, embeddings: Embeddings, options: RefineOptions, runtime: Runtime
) -> Plan:
    """`refine` with its settings already made; raises the same."""
    plan.require_match(embeddings.num_rows, None)
    made = replace(plan, metadata=replace(plan.metadata, metrics={"passes": 0, "refine_gain": 0.0}))
    if options.passes:
        objective = make_objective(
            embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
            guard=guard_of(embeddings, options, runtime), penalty=options.guard_penalty,
            kinds=source_codes(options.source_column, embeddings, options.label_table),
        )  # fmt: skip
        passes = Passes(most=options.passes, least_gain=options.least_gain, seconds=options.seconds)
        made = improved(made, embeddings, objective, runtime, passes, options.neighbors)
    before = plan.metadata
    stored = {
        **asdict(options),
        "planner": before.options["planner"] if before.planner == "refine" else before.planner,
        "plan": rows_digest(plan.rows),
    }
    embeddings.require_unchanged()
    metadata = replace(
        made.metadata, planner="refine", options=stored, seed=runtime.seed,
        fingerprint=embeddings.fingerprint, versions=dict(library_versions()),
    )  # fmt: skip
    return replace(made, metadata=metadata)


def improved(
    plan: Plan,
    embeddings: Embeddings,
    objective: Objective,
    runtime: Runtime,
    passes: Passes,
    neighbors: int = NEIGHBORS,
) -> Plan:
    """The plan after some passes, and with rows moved apart that break the guard.

    Its metrics tell how many ``passes`` were made, and by how much they raised the mean loss, in
    nats (``refine_gain``); and, with a guard, how many pairs break it still (``broken_pairs``).
    """
    # A copy, as kernels are compiled once more for arrays that cannot be written to.
    rows, offsets = plan.rows, plan.batch_offsets.copy()
    facts: dict[str, float] = {}
    if passes.most:
        lists = neighbor_lists(
            embeddings, neighbors, runtime, similarity=objective.similarity, guard=objective.guard
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
