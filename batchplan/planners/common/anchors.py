"""Batches of anchors followed by their negatives: what a table of negatives becomes as a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.kernels import njit
from batchplan.planners.common.cut import SHUFFLE, from_batches

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.planners.common.options import PlannerOptions
    from batchplan.plans import Plan
    from batchplan.runtime import Runtime

Int64Array = NDArray[np.int64]


def check_batch(batch_size: int, negatives: int) -> None:
    """Refuse batches too small for one anchor and its negatives.

    Raises:
        InputError: fewer than 1 + ``negatives`` rows in a batch.
    """
    if batch_size < 1 + negatives:
        raise InputError(
            f"negatives: got {negatives}, expected at most {batch_size - 1} in batches of "
            f"{batch_size} rows, which hold an anchor too; ask for fewer, or for larger batches"
        )


def batches_of(
    candidates: Int64Array,
    negatives: int,
    planner: str,
    embeddings: Embeddings,
    options: PlannerOptions,
    runtime: Runtime,
    apart: Sequence[Int64Array] = (),
) -> Plan:
    """A plan in which every row is an anchor once, its negatives in the same batch.

    A batch of B rows holds A = B // (1 + M) anchors, in random order, then the M negatives of each:
    the first of its candidates that the batch does not hold, then the lowest-numbered row that may
    be its negative. The B - A (1 + M) places left go to a further negative of each anchor in turn.

    Args:
        candidates: int64 (N, C), of each row the rows that may be its negatives, best first; -1
            where there are fewer.
        negatives: M.
        planner: stored, as are the options.
        apart: codes (N,) of labels or groups: no row gets a negative of its own code, -1 is none.

    Returns:
        A plan that repeats rows; its metric ``substituted`` is the share of the N M places of
        negatives whose row is not the anchor's own first choice. ``tail`` speaks of the last
        N mod A anchors: ``keep`` makes a short batch of them, ``drop`` leaves them out, ``pad``
        fills their batch with the anchors that come just before.
    """

    n, size = embeddings.num_rows, options.rows_per_batch
    check_batch(size, negatives)
    anchors = runtime.generator().permutation(n)
    each = size // (1 + negatives)
    full, left = divmod(n, each)
    if left and options.tail == "drop":
        anchors = anchors[: full * each]
    elif left and options.tail == "pad":
        anchors = np.concatenate((anchors[: full * each], anchors[-each:]))
    codes = np.stack(apart) if len(apart) else np.empty((0, n), np.int64)
    with runtime.stage("batches"):
        rows, sizes, other = _fill(anchors, candidates, codes, each, negatives, size)
    if options.batch_order == "shuffled":
        whole = len(sizes) - bool(left and options.tail != "drop")
        moved = np.append(
            runtime.generator(SHUFFLE).permutation(whole), np.arange(whole, len(sizes))
        )
        starts = np.concatenate(([0], np.cumsum(sizes)))
        rows = np.concatenate([rows[starts[b] : starts[b + 1]] for b in moved])
        sizes = sizes[moved]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    plan = from_batches(rows, offsets, planner, embeddings, options, runtime)
    share = other / (len(anchors) * negatives)
    return plan.with_metrics(anchors_per_batch=each, substituted=share)


@njit
def _fill(anchors, candidates, apart, each, negatives, size):  # type: ignore[no-untyped-def]
    n = candidates.shape[0]
    count = -(-len(anchors) // each)
    rows = np.empty(count * size, np.int64)
    sizes = np.zeros(count, np.int64)
    held = np.full(n, -1, np.int64)  # the last batch that holds a row
    filled = other = 0
    for b in range(count):
        own = anchors[b * each : (b + 1) * each]
        start = filled
        for anchor in own:
            held[anchor] = b
            rows[filled] = anchor
            filled += 1
        places = size - each if len(own) == each else len(own) * negatives
        for turn in range(places):
            regular = turn < len(own) * negatives
            anchor = own[turn // negatives] if regular else own[turn % len(own)]
            chosen = _choose(anchor, candidates[anchor], apart, held, b)
            if chosen < 0:
                continue
            if regular and chosen != _at(candidates[anchor], turn % negatives):
                other += 1
            held[chosen] = b
            rows[filled] = chosen
            filled += 1
        sizes[b] = filled - start
    return rows[:filled], sizes, other


@njit
def _choose(anchor, candidates, apart, held, batch):  # type: ignore[no-untyped-def]
    for row in candidates:
        if row >= 0 and held[row] != batch:
            return row
    for row in range(len(held)):
        if held[row] != batch and not _same(anchor, row, apart):
            return row
    return -1


@njit
def _same(one, other, apart):  # type: ignore[no-untyped-def]
    for codes in apart:  # noqa: SIM110  (numba knows no generator expressions)
        if codes[one] >= 0 and codes[one] == codes[other]:
            return True
    return False


@njit
def _at(candidates, place):  # type: ignore[no-untyped-def]
    return candidates[place] if place < len(candidates) else -1
