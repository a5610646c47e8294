"""The last steps of every planner: cut the draft into batches, refine and repair them, and add
metadata."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchplan import plans, refinement
from batchplan.data import Data
from batchplan.data.reference import stored_reference
from batchplan.errors import InputError
from batchplan.options import recorded
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.common.options import PassOptions, PlannerOptions
from batchplan.plans.batching import Batching
from batchplan.plans.metadata import PlanMetadata
from batchplan.plans.plan import Plan
from batchplan.plans.steps import batches_per_step, take_batches
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

SHUFFLE = 1  # the generator stream that orders batches; planners use others
_FILL = 9  # the stream of rows that fit nowhere


def finish(
    draft: Draft, planner: str, embeddings: Data, options: PlannerOptions, runtime: Runtime
) -> Plan:
    """Turn a draft into a plan.

    Cuts the rows into batches, then applies ``options.refine`` and the guard (see `improved`).
    Metrics of these steps come first, then the planner's.

    Raises:
        InputError: fewer batches than devices; or as `Plan.cut` and `Plan.from_batches`.
        ResourceError: the rows do not fit the memory budget.
    """
    batching, num_rows = options.batching(), embeddings.num_rows
    reference = draft.guard.reference if draft.guard else None
    facts = _facts(planner, embeddings, options, runtime)
    facts["options"] |= {**stored_reference(reference), **draft.stored}
    shuffle = runtime.generator(SHUFFLE)
    if draft.offsets is None:
        plan = Plan.cut(draft.rows, batching, num_rows=num_rows, generator=shuffle, **facts)
    else:
        rows, offsets = np.asarray(draft.rows), np.asarray(draft.offsets)
        if batching.batch_order == "shuffled" and not draft.refined:
            count = len(offsets) - 1
            whole = count - draft.leftover  # the leftover stays last
            order = np.append(shuffle.permutation(whole), np.arange(whole, count))
            rows, offsets = take_batches(rows, offsets, order)
        rows, offsets = _whole_steps(rows, offsets, batching)
        plan = Plan.from_batches(rows, offsets, batching, num_rows=num_rows, **facts)
    if isinstance(options, PassOptions) and not draft.refined:
        plan = _refined(plan, draft, embeddings, options, runtime)
    plan = plan.with_metrics(**draft.facts)
    return plan if draft.last is None else draft.last(plan)


def finish_table(
    mined: Mined, planner: str, embeddings: Data, options: PlannerOptions, runtime: Runtime
) -> plans.Negatives:
    """Turn mined negatives into a table with metadata."""
    negatives = np.asarray(mined.negatives)
    metadata = PlanMetadata.stamped(
        options.batching(), embeddings.num_rows, partitions_rows=False,
        **_facts(planner, embeddings, options, runtime),
    )  # fmt: skip
    return plans.Negatives(
        np.arange(len(negatives)) if mined.anchors is None else np.asarray(mined.anchors),
        negatives,
        metadata,
        mined.probabilities,
        mined.mixup,
    )


def _facts(
    planner: str, embeddings: Data, options: PlannerOptions, runtime: Runtime
) -> dict[str, Any]:
    """Where a plan or table comes from."""
    digest = None
    if embeddings.ids is not None:
        from batchplan.data.ids import ids_digest  # data without ids need no Arrow

        digest = ids_digest(embeddings.ids)
    return {
        "planner": planner,
        "options": recorded(options),
        "seed": runtime.seed,
        "fingerprint": embeddings.fingerprint,
        "shard_order": embeddings.shard_order,
        "ids_digest": digest,
    }


def _refined(
    plan: Plan, draft: Draft, embeddings: Data, options: PassOptions, runtime: Runtime
) -> Plan:
    # `refinement` imports torch and numba on use. Random plans do not need them.
    if not options.refine and not (draft.guard and draft.guard.active):
        return plan
    if not options.refine and draft.guard and draft.blind:
        from batchplan.guard.separation import filled, left_together

        offsets, generator = plan.batch_offsets.copy(), runtime.generator(_FILL)
        rows = filled(plan.rows.copy(), offsets, draft.guard.apart, generator)
        left = left_together(rows, offsets, draft.guard.apart)
        return Plan(rows, plan.batch_offsets, plan.metadata).with_metrics(broken_pairs=left)
    objective = refinement.make_objective(
        embeddings, runtime, similarity=options.similarity, temperature=options.temperature,
        guard=draft.guard, penalty=getattr(options, "guard_penalty", None),
    )  # fmt: skip
    return refinement.improved(plan, embeddings, objective, runtime, options.refine)


def _whole_steps(
    rows: Int64Array, offsets: Int64Array, batching: Batching
) -> tuple[Int64Array, Int64Array]:
    """Make the last step whole: the tail ``drop`` leaves out an incomplete last step, other tails
    fill it with the batches before it."""
    at_once = batches_per_step(batching.world_size, batching.scope)
    count = len(offsets) - 1
    if not (left := count % at_once):
        return rows, offsets
    if count < at_once:
        raise InputError(
            f"world size: got {at_once} devices for {count} batches, expected at most one device "
            "per batch; plan more batches, or for fewer devices"
        )
    whole = count - left
    if batching.tail == "drop":
        return rows[: offsets[whole]], offsets[: whole + 1]
    last = np.arange(count - at_once, count)
    return take_batches(rows, offsets, np.append(np.arange(whole), last))
