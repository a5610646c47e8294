"""From an order of the rows to a plan that records how it was made: the end of every planner."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from batchplan.data import Embeddings
    from batchplan.planners.options import PlannerOptions
    from batchplan.plans import Plan
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
        num_rows=embeddings.num_rows,
        batch_size=options.rows_per_batch,
        tail=options.tail,
        batch_order=options.batch_order,
        generator=runtime.generator(SHUFFLE),
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
    the planner has seen to; see `Plan.from_batches`. ``samples`` says whether a row may be in
    several batches, as against the batches of a part of an epoch."""
    from batchplan.plans import Plan

    return Plan.from_batches(
        rows,
        offsets,
        num_rows=embeddings.num_rows,
        batch_size=options.rows_per_batch,
        tail=options.tail,
        batch_order=options.batch_order,
        planner=planner,
        options=asdict(options),
        seed=runtime.seed,
        fingerprint=embeddings.fingerprint,
    )
