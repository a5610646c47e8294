"""From an order of the rows to a plan that records how it was made: the end of every planner."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from batchplan.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from batchplan.data import Embeddings
    from batchplan.planners.common.options import PlannerOptions
    from batchplan.plans import Batching, Plan, Provenance
    from batchplan.runtime import Runtime

SHUFFLE = 1  # the generator stream that orders batches, apart from the planner's own


def cut(
    order: ArrayLike,
    planner: str,
    embeddings: Embeddings,
    options: PlannerOptions,
    runtime: Runtime,
) -> Plan:
    """Cut ``order``, a permutation of the N rows, as ``options`` say."""
    from batchplan.plans import Plan

    return Plan.cut(
        order,
        batching_of(options),
        num_rows=embeddings.num_rows,
        generator=runtime.generator(SHUFFLE),
        provenance=provenance_of(planner, embeddings, options, runtime),
    )


def batching_of(options: PlannerOptions) -> Batching:
    """How ``options`` say that a plan is cut."""
    from batchplan.plans import Batching

    return Batching(
        options.rows_per_batch,
        tail=options.tail,
        batch_order=options.batch_order,
        scope=options.scope,
        world_size=options.world_size,
    )


def provenance_of(
    planner: str, embeddings: Embeddings, options: PlannerOptions, runtime: Runtime
) -> Provenance:
    """Where the plan of such a run comes from."""
    from batchplan.plans import Provenance

    return Provenance(
        planner=planner,
        options=asdict(options),
        seed=runtime.seed,
        fingerprint=embeddings.fingerprint,
    )


def from_batches(
    rows: ArrayLike,
    offsets: ArrayLike,
    planner: str,
    embeddings: Embeddings,
    options: PlannerOptions,
    runtime: Runtime,
    *,
    samples: bool = True,
) -> Plan:
    """Batches that need not hold every row, in the order and with the tail of ``options``, which
    the planner has seen to; here they are made whole steps of all devices.

    Under the tail ``drop`` batches that fill no step are left out. Otherwise the batches that come
    just before them are repeated, if ``samples`` says that rows may be in several batches, as
    against the batches of a part of an epoch.

    Raises:
        InputError: fewer batches than devices; a part of an epoch that would have to repeat
            batches; or as `Plan.from_batches`.
    """
    import numpy as np

    from batchplan.plans import Plan

    rows, offsets = _whole_steps(np.asarray(rows), np.asarray(offsets), options, samples)
    return Plan.from_batches(
        rows,
        offsets,
        batching_of(options),
        num_rows=embeddings.num_rows,
        provenance=provenance_of(planner, embeddings, options, runtime),
    )


def _whole_steps(
    rows: NDArray[np.int64], offsets: NDArray[np.int64], options: PlannerOptions, samples: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    import numpy as np

    from batchplan.plans.steps import batches_per_step

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
    if not samples:
        raise InputError(
            f"world size: got {at_once} devices for {count} batches, which cannot be repeated in a "
            f"part of an epoch; give a --num-batches that is a multiple of {at_once}, or use "
            "--tail drop, which leaves rows to the next part"
        )
    first = count - at_once  # the last step begins that early, so that it is full
    rows = np.concatenate((rows[: offsets[whole]], rows[offsets[first] :]))
    sizes = np.concatenate((sizes[:whole], sizes[first:]))
    return rows, np.concatenate(([0], np.cumsum(sizes)))
