"""The rules for rows and batch offsets; each violation is an `InputError`."""

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.typing import Int64Array


def widen(values: NDArray[np.generic], where: str) -> Int64Array:
    """Return the integers as int64.

    Args:
        values: (n,) of any dtype.
        where: the name of the values in messages.

    Raises:
        InputError: not integers, not one-dimensional, empty, or too large for int64.
    """
    if values.dtype.kind not in "iu" or values.ndim != 1 or not values.size:
        raise InputError(
            f"{where}: got {values.dtype} of shape {values.shape}, expected integers in one "
            "dimension, and at least one"
        )
    if values.dtype.kind == "u" and int(values.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{where}: holds {values.max()}, which int64 cannot hold")
    return values.astype(np.int64, copy=False)


def narrow(rows: Int64Array) -> NDArray[np.int32 | np.int64]:
    """Return row numbers as files store them: int32 if all fit, which halves the size."""
    fits = not rows.size or rows.max() <= np.iinfo(np.int32).max
    return rows.astype(np.int32) if fits else rows


def integers_of(listed: object) -> Int64Array | None:
    """Return a JSON list of integers as int64; None for anything else."""
    try:
        # Types are compared because NumPy would convert true and 1.5 to integers.
        if isinstance(listed, list) and set(map(type, listed)) == {int}:
            return np.array(listed, dtype=np.int64)
    except OverflowError:
        pass
    return None


def check_offsets(offsets: Int64Array, num_entries: int, where: str) -> None:
    """Require offsets that start at 0, increase and end at ``num_entries``."""
    ends = len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == num_entries
    if not ends or (offsets[1:] <= offsets[:-1]).any():
        raise InputError(
            f"{where}: batch offsets must increase from 0 to {num_entries}, the number of entries"
        )


def check_range(rows: Int64Array, num_rows: int, where: str) -> None:
    """Require 0 <= row < num_rows everywhere."""
    if not rows.size or (rows.min() >= 0 and rows.max() < num_rows):
        return
    outside = np.flatnonzero((rows < 0) | (rows >= num_rows))
    raise InputError(
        f"{where}: {outside.size} row numbers outside 0 to {num_rows - 1}, the first is "
        f"{rows[outside[0]]} at position {outside[0]} (from 0); is the plan for other data?"
    )


def check_partition(rows: Int64Array, num_rows: int, where: str) -> None:
    """Require that ``rows``, already in range, have each of ``num_rows`` rows exactly once."""
    if not is_partition(rows, num_rows):
        distinct = len(np.unique(rows))
        raise InputError(
            f"{where}: {len(rows) - distinct} rows repeated and {num_rows - distinct} missing, "
            f"expected each of {num_rows} rows once"
        )


def is_partition(rows: Int64Array, num_rows: int) -> bool:
    """Return whether ``rows``, all from 0 to num_rows - 1, have each of them exactly once."""
    # Check the length first: num_rows from a damaged file must not size an array.
    if len(rows) != num_rows:
        return False
    seen = np.zeros(num_rows, bool)
    seen[rows] = True
    return bool(seen.all())


def check_batches_distinct(rows: Int64Array, offsets: Int64Array, where: str) -> None:
    """Require that no batch repeats a row, which would be its own negative."""
    batch = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.argsort(rows, kind="stable")  # equal rows stay in batch order
    same = (rows[order[1:]] == rows[order[:-1]]) & (batch[order[1:]] == batch[order[:-1]])
    if same.any():
        repeats = order[1:][same]
        first = repeats.min()
        raise InputError(
            f"{where}: {len(repeats)} rows repeated within a batch, first row {rows[first]} in "
            f"batch {batch[first]}; the rows of a batch must be distinct"
        )


def regular_offsets(num_entries: int, batch_size: int) -> Int64Array:
    """Return offsets of full batches; only the last may be shorter."""
    num_batches = -(-num_entries // batch_size)
    return np.minimum(np.arange(num_batches + 1, dtype=np.int64) * batch_size, num_entries)
