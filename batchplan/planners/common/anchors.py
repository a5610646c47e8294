"""Makes batches of anchors and their negatives, from a table of negatives."""

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.guard.apart import Apart, apart
from batchplan.guard.separation import filled
from batchplan.kernels import njit
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.options import PlannerOptions
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_ORDER = int.from_bytes(b"anchors")  # the stream of random numbers of their order


def check_batch(batch_size: int, negatives: int) -> None:
    """Refuse batches that are too small for an anchor and its negatives.

    Raises:
        InputError: fewer than 1 + ``negatives`` rows in a batch.
    """
    if batch_size < 1 + negatives:
        raise InputError(
            f"negatives: got {negatives}, expected at most {batch_size - 1} in batches of "
            f"{batch_size} rows, which also have an anchor; use fewer, or larger batches"
        )


def anchor_batches(
    candidates: Int64Array,
    negatives: int,
    options: PlannerOptions,
    runtime: Runtime,
    separate: Apart,
    known: Apart,
) -> Draft:
    """Make batches in which every row is an anchor once, together with its negatives.

    A batch of B rows has A = B // (1 + M) anchors in random order, then the M negatives of each:
    its first candidates that are not in the batch, then the lowest rows that may be its negatives.
    The other B - A (1 + M) places get further negatives of each anchor in turn. Known answers of
    rows of the batch come last.

    Args:
        candidates: int64 (N, C), the possible negatives of each row, best first, then -1.
        negatives: M, which `check_batch` accepts.
        separate: no row gets a negative that it must not share a batch with.
        known: the rows of a batch are not separate by it, wherever that is possible.

    Returns:
        Batches that repeat rows. ``tail`` decides about the last N mod A anchors: ``keep`` makes a
        short batch of them, ``drop`` leaves them out, and ``pad`` fills their batch with the
        anchors before them.
    """
    n, size = len(candidates), options.rows_per_batch
    anchors = runtime.generator().permutation(n)
    each = size // (1 + negatives)
    full, left = divmod(n, each)
    if left and options.tail == "drop":
        anchors = anchors[: full * each]
    elif left and options.tail == "pad":
        anchors = np.concatenate((anchors[: full * each], anchors[-each:]))
    with runtime.stage("batches"):
        if known.codes.size + known.spans.size:
            edges = np.append(np.arange(0, len(anchors), each), len(anchors))
            anchors = filled(anchors, edges, known, runtime.generator(_ORDER))
        rows, sizes = _fill(anchors, candidates, separate, known, each, negatives, size)
    return Draft(
        rows=rows,
        offsets=np.append(0, np.cumsum(sizes)),
        leftover=bool(left and options.tail != "drop"),
    )


def require_enough(counts: NDArray[np.int64], least: int) -> None:
    """Require that every row has ``least`` possible negatives; ``counts`` (N,) has their numbers.

    Raises:
        InputError: names the first row with fewer.
    """
    if (few := np.flatnonzero(counts < least)).size:
        row = int(few[0])
        raise InputError(
            f"negatives: row {row} has {counts[row]} rows to draw from, expected at least {least} "
            f"({few.size} rows have fewer): all others share its label or group, are too similar, "
            "or are beyond top_k; use fewer --per-row, a milder guard, or a larger --top-k"
        )


@njit
def _fill(anchors, candidates, separate, known, each, negatives, size):  # type: ignore[no-untyped-def]
    n = candidates.shape[0]
    count = -(-len(anchors) // each)
    rows = np.empty(count * size, np.int64)
    sizes = np.zeros(count, np.int64)
    held = np.full(n, -1, np.int64)  # the last batch that has each row
    filled = 0
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
            batch = rows[start:filled]
            chosen = _choose(anchor, candidates[anchor], separate, known, held, b, batch)
            if chosen < 0:
                continue
            held[chosen] = b
            rows[filled] = chosen
            filled += 1
        sizes[b] = filled - start
    return rows[:filled], sizes


@njit
def _choose(anchor, candidates, separate, known, held, number, batch):  # type: ignore[no-untyped-def]
    """Return the next negative of an anchor for a batch; -1 if there is none."""
    for strict in (True, False):
        for row in candidates:
            if row >= 0 and held[row] != number and not (strict and _meets(row, batch, known)):
                return row
        for row in range(len(held)):
            if (
                held[row] != number
                and not apart(anchor, row, separate)
                and not (strict and _meets(row, batch, known))
            ):
                return row
    return -1


@njit
def _meets(row, batch, known):  # type: ignore[no-untyped-def]
    for other in batch:  # noqa: SIM110  (compiled code has no generators)
        if apart(row, other, known):
            return True
    return False
