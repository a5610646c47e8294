"""The end of every planner: its draft is cut into batches, refined, repaired and stamped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan import refinement
from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.common.options import PassOptions, PlannerOptions
from batchplan.plans.metadata import PlanMetadata, library_versions
from batchplan.plans.negatives import Negatives
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step
from batchplan.runtime import Runtime

SHUFFLE = 1  # the generator stream that orders batches, apart from the planner's own

Int64Array = NDArray[np.int64]


def finish(
    draft: Draft, planner: str, embeddings: Embeddings, options: PlannerOptions, runtime: Runtime
) -> Plan:
    """The plan that a draft becomes.

    The rows are cut into batches; the guard and ``options.refine`` are applied, see `improved`.
    The metrics of these steps come first, then the planner's own.

    Raises:
        InputError: fewer batches than devices; a part of an epoch that would have to repeat
            batches; or as `Plan.cut` and `Plan.from_batches`.
        ResourceError: the rows do not fit the memory budget.
    """
    layout: dict[str, Any] = {
        "num_rows": embeddings.num_rows,
        "batch_size": options.rows_per_batch,
        "tail": options.tail,
        "batch_order": options.batch_order,
        "world_size": options.world_size,
        "scope": options.scope,
        "planner": planner,
        "options": {**asdict(options), **draft.stored},
        "seed": runtime.seed,
        "fingerprint": embeddings.fingerprint,
    }
    if draft.offsets is None:
        plan = Plan.cut(draft.rows, generator=runtime.generator(SHUFFLE), **layout)
    else:
        plan = Plan.from_batches(*_whole_steps(draft, options), **layout)
    if not draft.refined and isinstance(options, PassOptions):
        plan = _refined(plan, draft, embeddings, options, runtime)
    return plan.with_metrics(**(draft.facts(plan) if callable(draft.facts) else draft.facts))


def finish_table(
    mined: Mined, planner: str, embeddings: Embeddings, options: PlannerOptions, runtime: Runtime
) -> Negatives:
    """The table of negatives, with its metadata."""
    negatives = np.asarray(mined.negatives)
    certain = mined.probabilities is None
    metadata = PlanMetadata(
        planner=planner,
        options=asdict(options),
        seed=runtime.seed,
        batch_size=options.rows_per_batch,
        num_rows=embeddings.num_rows,
        tail=options.tail,
        batch_order=options.batch_order,
        scope=options.scope,
        world_size=options.world_size,
        partitions_rows=False,
        fingerprint=embeddings.fingerprint,
        versions=dict(library_versions()),
    )
    return Negatives(
        np.arange(len(negatives)),
        negatives,
        np.ones(negatives.shape, np.float32) if certain else np.asarray(mined.probabilities),
        None if mined.mixup is None else np.asarray(mined.mixup),
        metadata,
    )


def _refined(
    plan: Plan, draft: Draft, embeddings: Embeddings, options: PassOptions, runtime: Runtime
) -> Plan:
    # `refinement` loads torch and numba when it is used, a second that random plans do not wait.
    if not options.refine and not (draft.guard and draft.guard.active):
        return plan
    objective = refinement.make_objective(
        embeddings,
        runtime,
        similarity=options.similarity,
        temperature=options.temperature,
        guard=draft.guard,
        penalty=getattr(options, "guard_penalty", None),
    )
    passes = refinement.Passes(most=options.refine)
    return refinement.improved(plan, embeddings, objective, runtime, passes)


def _whole_steps(draft: Draft, options: PlannerOptions) -> tuple[Int64Array, Int64Array]:
    """The batches of whole steps. Under the tail ``drop`` those that fill no step are left out;
    otherwise the batches that come just before them are repeated."""
    rows, offsets = np.asarray(draft.rows), np.asarray(draft.offsets)
    at_once = batches_per_step(options.world_size, options.scope)
    sizes = np.diff(offsets)
    count = len(sizes)
    if not (left := count % at_once):
        return rows, offsets
    if count < at_once:
        raise InputError(
            f"world size: got {at_once} devices for {count} batches, expected at most one device a "
            "batch; plan more batches, or for fewer devices"
        )
    whole = count - left
    if options.tail == "drop":
        return rows[: offsets[whole]], offsets[: whole + 1]
    if not draft.repeatable:
        raise InputError(
            f"world size: got {at_once} devices for {count} batches, which cannot be repeated in a "
            f"part of an epoch; give a --num-batches that is a multiple of {at_once}, or use "
            "--tail drop, which leaves rows to the next part"
        )
    first = count - at_once  # the last step begins that early, so that it is full
    rows = np.concatenate((rows[: offsets[whole]], rows[offsets[first] :]))
    sizes = np.concatenate((sizes[:whole], sizes[first:]))
    return rows, np.concatenate(([0], np.cumsum(sizes)))
