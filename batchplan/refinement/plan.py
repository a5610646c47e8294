"""`refine`: raises the training loss of any plan by swaps between its batches."""

from typing import Any, Unpack

from batchplan.data.answer_options import APART
from batchplan.data.candidates import Candidates, Data, data_of
from batchplan.data.labels import source_codes
from batchplan.data.reference import stored_reference
from batchplan.errors import InputError
from batchplan.graph.affinity import neighbor_lists
from batchplan.guard.guard import guard_of
from batchplan.keywords import RefineKeywords
from batchplan.options import recorded, with_options
from batchplan.plans.metadata import library_versions, rows_digest
from batchplan.plans.plan import Plan, require_plan
from batchplan.refinement.objective import Objective, make_objective, swap_graph
from batchplan.refinement.options import NEIGHBORS, RefineOptions
from batchplan.refinement.passes import refine_rows
from batchplan.refinement.repair import repair_rows
from batchplan.runtime import Observer, Runtime
from batchplan.text import as_flags


@with_options(RefineOptions)
def refine(
    plan: Plan,
    x: Any,
    y: Any = None,
    *,
    negatives: Any = None,
    seed: int = 0,
    device: str = "auto",
    memory: int | str | None = None,
    observer: Observer | None = None,
    **options: Unpack[RefineKeywords],
) -> Plan:
    """Raise the training loss of a plan by swaps between its batches; it never falls.

    Args:
        plan: of any planner, for data with as many rows. The rows may have new embeddings.
        x, y, negatives: `Embeddings`, or arrays, tensors or columns, as `batchplan.plan`
            takes them.
        seed, device, memory, observer: see `Runtime`.
        options: fields of `RefineOptions`: ``passes``, ``temperature``, guards and others.

    Returns:
        A plan with the same batch sizes in the same order. Its metrics are described at `improved`.

    Raises:
        InputError: an unknown option or one out of range, a plan of other data, a plan by columns
            that the options do not name, or arrays that `Embeddings.from_arrays` refuses.
        ResourceError: not enough memory, or no such device.
    """
    runtime, settings = Runtime.of(device, memory, seed, observer), RefineOptions(**options)
    require_plan(plan, x, "refine")
    return refine_plan(plan, data_of(x, y, negatives), settings, runtime)


def refine_plan(plan: Plan, embeddings: Data, options: RefineOptions, runtime: Runtime) -> Plan:
    """`refine` with options and a runtime; raises the same."""
    plan.require_match(embeddings.num_rows, None)
    plan.metadata.require_order(embeddings.shard_order)
    _require_columns(plan, options)
    before = plan.metadata
    ids_digest = before.ids_digest
    if embeddings.ids is not None:
        from batchplan.data.ids import Ids, check_digest  # data without ids need no Arrow

        ids_digest = check_digest(ids_digest, Ids(embeddings.ids, "the data"))
    unchanged = {"passes": 0, "refine_gain": 0.0}
    refined = plan.with_metadata(metrics=unchanged)
    guard = guard_of(embeddings, options, runtime)
    if embeddings.ids is None:  # else these were compared
        before.require_ids(embeddings, options.label_table, guard.reference)
    if options.passes:
        objective = make_objective(
            embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
            guard=guard, penalty=options.guard_penalty,
            kinds=source_codes(options.source_column, embeddings, options.label_table),
        )  # fmt: skip
        refined = improved(
            refined, embeddings, objective, runtime, options.passes, options.neighbors
        )
    stored = {
        **recorded(options),
        **stored_reference(guard.reference),
        "planner": before.options["planner"] if before.planner == "refine" else before.planner,
        "plan": rows_digest(plan.rows),
    }
    return refined.with_metadata(
        planner="refine", options=stored, seed=runtime.seed,
        fingerprint=embeddings.fingerprint, versions=dict(library_versions()),
        shard_order=embeddings.shard_order or before.shard_order, ids_digest=ids_digest,
    )  # fmt: skip


def _require_columns(plan: Plan, options: RefineOptions) -> None:
    """Require the columns and the list by which the plan keeps rows apart, or swaps would bring
    these together. Raises InputError."""
    planned = {name: plan.metadata.options.get(name) for name in APART}
    lost = {name: value for name, value in planned.items() if value and not getattr(options, name)}
    if lost.keys() - {"label_table"}:
        raise InputError(
            f"plan: was made with {' '.join(as_flags(lost))}; name them again, or swaps would "
            "bring rows together that it keeps apart"
        )


def improved(
    plan: Plan,
    embeddings: Data,
    objective: Objective,
    runtime: Runtime,
    passes: int,
    neighbors: int = NEIGHBORS,
) -> Plan:
    """Refine a plan by some passes, then separate pairs that break the guard.

    Metrics of the new plan are the number of ``passes``, the rise of the mean loss by them in nats
    (``refine_gain``) and, with a guard, the number of pairs that still break it (``broken_pairs``).
    """
    # A copy: for read-only arrays, numba would compile all kernels again.
    rows, offsets = plan.rows, plan.batch_offsets.copy()
    facts: dict[str, float] = {}
    if passes:
        lists = []
        if not isinstance(embeddings, Candidates):
            lists = neighbor_lists(
                embeddings, neighbors, runtime, similarity=objective.similarity,
                guard=objective.guard,
            )  # fmt: skip
        affinity = swap_graph(
            objective, lists, runtime, neighbors=neighbors, batch_size=plan.batch_size
        )
        refined = refine_rows(rows, offsets, objective, affinity, runtime, passes)
        rows = refined.rows
        ways = 2 if objective.lists is None else 1
        facts = {"passes": refined.passes, "refine_gain": refined.gain / (ways * len(rows))}
    if objective.guard.active:
        rows, facts["broken_pairs"] = repair_rows(rows, offsets, objective, runtime)
    return Plan(rows, plan.batch_offsets, plan.metadata).with_metrics(**facts)
