"""Checks of the content in one pass: finite values, rows of zeros and the fingerprint.

Each byte is read from memory once: threads check and hash blocks of rows in chunks that fit the
processor's cache (NumPy and hashlib release the GIL).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data.matrix import BLOCK_BYTES, RowMatrix, Side
from batchplan.errors import InputError
from batchplan.runtime import usable_processors
from batchplan.typing import BoolArray, Int64Array

_CHUNK_BYTES = 256 << 10
_NAMED = 5  # rows that an error message names
_NO_ROWS = np.empty(0, np.int64)
_BITS: dict[int, tuple[type[np.unsignedinteger[Any]], int]] = {
    2: (np.uint16, 0x7C00),
    4: (np.uint32, 0x7F800000),
}


@dataclass
class RowTally:
    """The number of rows of some kind in a side, of values in them, and the first few rows."""

    rows: int = 0
    values: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, rows: Int64Array, values: int = 0) -> None:
        """Count more rows, which come after those counted before."""
        self.rows += rows.size
        self.values += values
        self.first += rows[: _NAMED - len(self.first)].tolist()

    def merge(self, other: RowTally) -> None:
        """Count the rows of another tally, which come after those counted before."""
        self.rows += other.rows
        self.values += other.values
        self.first += other.first[: _NAMED - len(self.first)]

    def places(self, side: Side) -> str:
        """The first rows by name: ``a.npy row 3, a.npy row 7 and 12 more``."""
        named = ", ".join(side.place(row) for row in self.first)
        more = self.rows - len(self.first)
        return f"{named} and {more} more" if more else named


@dataclass
class Content:
    """Rows with NaN or Inf and rows of zeros in a side, and the largest magnitude of a value."""

    bad: RowTally = field(default_factory=RowTally)
    zeros: RowTally = field(default_factory=RowTally)
    largest: float = 0.0


def check_content(
    sides: Sequence[Side], advance: Callable[[int], None], threads: int | None = None
) -> tuple[str, dict[str, Content]]:
    """Read every row of the sides once.

    Returns:
        The fingerprint (``b2:`` and 32 hex digits), which depends only on the rows, their order,
        their dtype and the number of sides; and the content of each side, by name.

    Raises:
        InputError: a value is NaN or infinite.
    """
    hasher = blake2b(digest_size=16)
    for side in sides:
        (rows, dim), dtype = side.matrix.shape, side.matrix.dtype
        hasher.update(f"{side.name} {rows} {dim} {dtype.name}\n".encode())
    contents = {side.name: Content() for side in sides}
    pool = ThreadPoolExecutor(threads or usable_processors())
    try:
        for side in sides:
            content, spans = contents[side.name], _spans(side.matrix)
            spread = pool.map if len(spans[0]) > 1 else map  # one block gains nothing by a thread
            blocks = spread(partial(_check_block, side.matrix), *spans)
            for (digest, block), start, stop in zip(blocks, *spans, strict=True):
                hasher.update(digest)
                content.bad.merge(block.bad)
                content.zeros.merge(block.zeros)
                content.largest = max(content.largest, block.largest)
                advance(stop - start)
            if (bad := content.bad).rows:
                raise InputError(
                    f"{side.name}: got {bad.values} NaN or Inf values in {bad.rows} rows "
                    f"({bad.places(side)}), expected finite numbers; recompute or drop these rows"
                )
    finally:
        pool.shutdown(cancel_futures=True)  # without it, Ctrl-C would wait for all blocks
    return f"b2:{hasher.hexdigest()}", contents


def _spans(matrix: RowMatrix) -> tuple[list[int], list[int]]:
    """Where blocks begin and end; independent of shards, because the fingerprint hashes blocks."""
    rows, dim = matrix.shape
    step = max(1, BLOCK_BYTES // (dim * matrix.dtype.itemsize))
    starts = list(range(0, rows, step))
    return starts, [*starts[1:], rows]


def _check_block(matrix: RowMatrix, start: int, stop: int) -> tuple[bytes, Content]:
    """The digest and the content of the rows from ``start`` to ``stop``."""
    hasher, content, row = blake2b(), Content(), start
    step = max(1, _CHUNK_BYTES // (matrix.shape[1] * matrix.dtype.itemsize))
    for piece in matrix.pieces(start, stop):
        for offset in range(0, len(piece), step):
            chunk = piece[offset : offset + step]
            bad, bad_values, zeros, largest = _check_chunk(chunk)
            content.bad.add(bad + row, bad_values)
            content.zeros.add(zeros + row)
            content.largest = max(content.largest, largest)
            hasher.update(chunk.reshape(-1).view(np.uint8).data)
            row += len(chunk)
    return hasher.digest(), content


def _check_chunk(chunk: NDArray[Any]) -> tuple[Int64Array, int, Int64Array, float]:
    """Rows with NaN or Inf, the number of such values, rows of zeros, and the largest magnitude,
    from the bit patterns.

    Without their sign bit, floats order as unsigned integers, with Inf and NaN at the top. So
    float16 needs no slow conversion, and a clean chunk takes one mask and one maximum.
    """
    unsigned, infinity = _BITS[chunk.dtype.itemsize]
    magnitude = chunk.view(unsigned) & unsigned(np.iinfo(unsigned).max >> 1)
    bad_rows, bad_values = _NO_ROWS, 0
    largest = magnitude.max()
    if largest >= infinity:
        bad = magnitude >= infinity
        bad_rows, bad_values = np.flatnonzero(bad.any(axis=1)), int(bad.sum())
    candidates = np.flatnonzero(magnitude[:, 0] == 0)
    zero_rows = candidates[~magnitude[candidates].any(axis=1)] if candidates.size else _NO_ROWS
    return bad_rows, bad_values, zero_rows, float(largest.view(chunk.dtype))


def long_rows(matrix: RowMatrix, limit: float) -> tuple[RowTally, float]:
    """The rows longer than ``limit``, and the length of the longest of all."""
    rows, dim = matrix.shape
    step = max(1, BLOCK_BYTES // (8 * dim))
    tally, longest = RowTally(), 0.0
    for start in range(0, rows, step):
        lengths = np.linalg.norm(matrix.rows(start, start + step).astype(np.float64), axis=1)
        tally.add(np.flatnonzero(lengths > limit) + start)
        longest = max(longest, float(lengths.max()))
    return tally, longest


def zero_rows(matrix: RowMatrix) -> BoolArray:
    """bool (N,): the rows of zeros."""
    rows, dim = matrix.shape
    step = max(1, BLOCK_BYTES // (matrix.dtype.itemsize * dim))
    return np.concatenate(
        [~matrix.rows(start, start + step).any(axis=1) for start in range(0, rows, step)]
    )
