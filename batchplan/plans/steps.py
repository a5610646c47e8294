"""Training steps of several devices, and how an order of rows is cut into them.

In each step every one of W devices gets rows. With scope ``device`` these are its own batch, so a
step has W batches; with ``global`` they are a share of one batch.
"""

import numpy as np

from batchplan.errors import InputError
from batchplan.plans.batching import Batching
from batchplan.typing import Int64Array


def batches_per_step(world_size: int, scope: str) -> int:
    """Return batches that are trained on at the same time."""
    return world_size if scope == "device" else 1


def share_offsets(count: int | Int64Array, parts: int) -> Int64Array:
    """Return where contiguous parts of ``count`` entries begin, and the end: int64 (parts + 1,).

    Sizes differ by at most one; the larger parts come first. For counts (n, 1), int64
    (n, parts + 1).
    """
    part = np.arange(parts + 1, dtype=np.int64)
    return part * (count // parts) + np.minimum(part, count % parts)


def take_batches(
    rows: Int64Array, offsets: Int64Array, batches: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the rows and offsets of the batches with these numbers, in the given order."""
    lengths = np.diff(offsets)[batches]
    ends = np.cumsum(lengths)
    shift = np.repeat(offsets[batches] - ends + lengths, lengths)
    return rows[shift + np.arange(len(shift))], np.append(0, ends)


def cut_order(
    rows: Int64Array, batching: Batching, shuffle: np.random.Generator | None
) -> tuple[Int64Array, Int64Array]:
    """Cut an order: the rows batch after batch, and the batch offsets.

    Args:
        rows: int64 (N,), a permutation.
        batching: how to cut it.
        shuffle: shuffles the full batches unless it is None. A last step from the tail stays last;
            only it may have short batches or repeated rows.

    Raises:
        InputError: a step of more than N rows; or ``keep`` with fewer rows left for the last step
            than devices.
    """
    batch_size, world_size, tail = batching.batch_size, batching.world_size, batching.tail
    at_once = batches_per_step(world_size, batching.scope)
    step = batch_size * at_once
    if step > len(rows):
        raise InputError(
            f"world size: {world_size} devices with batches of {batch_size} take {step} rows per "
            f"step, expected at most {len(rows)} (the number of rows); choose smaller batches, or "
            "fewer devices"
        )
    left = len(rows) % step
    check_left(left, world_size, tail)
    whole, last = rows[: len(rows) - left], rows[len(rows) - left :]
    if left and tail == "drop":
        last = last[:0]
    elif left and tail == "pad":
        # The end of a permutation repeats no row, however it is divided.
        last = rows[-step:]
    full = whole.reshape(-1, batch_size)
    if shuffle is not None:
        full = full[shuffle.permutation(len(full))]
    offsets = np.arange(len(full) + 1, dtype=np.int64) * batch_size
    if len(last):
        offsets = np.append(offsets[:-1], len(whole) + share_offsets(len(last), at_once))
    return np.concatenate((full.ravel(), last)), offsets


def check_left(left: int, world_size: int, tail: str) -> None:
    """Require at least one row per device in a last step that is kept.

    Raises:
        InputError: there are fewer.
    """
    if tail == "keep" and 0 < left < world_size:
        raise InputError(
            f"tail: got keep, but {left} rows are left for the last step of {world_size} devices, "
            "expected at least one for each; use --tail drop or --tail pad"
        )


def check_steps(offsets: Int64Array, world_size: int, scope: str, where: str) -> None:
    """Require that each device gets rows in every step.

    Raises:
        InputError: the number of batches is not a multiple of the number of devices, or more
            devices share a batch than it has rows.
    """
    count = len(offsets) - 1
    if count % batches_per_step(world_size, scope):
        raise InputError(
            f"{where}: {count} batches for {world_size} devices, expected a multiple of "
            f"{world_size}; plan again with --world-size {world_size}"
        )
    sizes = np.diff(offsets)
    if scope == "global" and sizes.min() < world_size:
        raise InputError(
            f"{where}: batch {sizes.argmin()} has {sizes.min()} rows for {world_size} devices, "
            "expected at least one for each; plan again with --tail drop or --tail pad"
        )
