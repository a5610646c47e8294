"""Checks all values in one pass, and makes the fingerprint.

Each byte is read from memory once: threads check and hash blocks of rows in chunks that fit the
processor's cache (NumPy and hashlib release the GIL).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.data.matrix import BLOCK_BYTES, RowMatrix, Side
from batchplan.errors import InputError
from batchplan.runtime import usable_processors
from batchplan.typing import Int64Array

_CHUNK_BYTES = 256 << 10
_NO_ROWS = np.empty(0, np.int64)


class Content(NamedTuple):
    """Facts about the values of a side.

    Attributes:
        zeros: int64, the rows of zeros, ascending.
        largest: the largest magnitude of a value.
    """

    zeros: Int64Array
    largest: float


def check_content(
    sides: Sequence[Side], advance: Callable[[int], None], threads: int | None = None
) -> tuple[str, dict[str, Content]]:
    """Read every row of the sides once.

    Returns:
        The fingerprint (``b2:`` and 32 hex digits), and the content of each side by name. The
        fingerprint depends only on the rows, their order, their dtype and the number of sides.

    Raises:
        InputError: a value is NaN or infinite.
    """
    hasher = blake2b(digest_size=16)
    for side in sides:
        _refuse_bits(side)
        (rows, dim), dtype = side.matrix.shape, side.matrix.dtype
        hasher.update(f"{side.name} {rows} {dim} {dtype.name}\n".encode())
    contents = {}
    pool = ThreadPoolExecutor(threads or usable_processors())
    try:
        for side in sides:
            spans, found = _spans(side.matrix), []
            spread = pool.map if len(spans[0]) > 1 else map  # one block gains nothing by a thread
            blocks = spread(partial(_check_block, side.matrix), *spans)
            for (digest, *facts), start, stop in zip(blocks, *spans, strict=True):
                hasher.update(digest)
                found.append(facts)
                advance(stop - start)
            bad, values, zeros, largest = _together(found)
            if len(bad):
                raise InputError(
                    f"{side.name}: got {values} NaN or Inf values in {len(bad)} rows "
                    f"({side.places(bad)}), expected finite numbers that "
                    "float32 can hold; recompute or drop these rows"
                )
            contents[side.name] = Content(zeros, largest)
    finally:
        pool.shutdown(cancel_futures=True)  # without it, Ctrl-C would wait for all blocks
    return f"b2:{hasher.hexdigest()}", contents


def _refuse_bits(side: Side) -> None:
    """Refuse int8 that are likely packed bits, a quarter of which are near the ends of the range;
    of quantised vectors few are."""
    rows = side.matrix.rows(0, 1 << 12) if side.matrix.kept == np.int8 else np.empty(0)
    if rows.size >= 1 << 10 and (np.abs(rows + 0.5) > 96).mean() > 1 / 6:
        raise InputError(
            f"{side.name}: got int8 that look like packed bits ({side.place(0)}), as sentence-"
            "transformers' precision='binary' has them, expected numbers; if they are bits, save "
            "np.unpackbits(x.view(np.uint8) ^ 128, axis=1) * np.float32(2) - 1, else "
            "x.astype(np.float32)"
        )


def _spans(matrix: RowMatrix) -> tuple[list[int], list[int]]:
    """Return where blocks begin and end. The fingerprint hashes blocks, so shards do not matter."""
    rows, dim = matrix.shape
    step = max(1, BLOCK_BYTES // (dim * matrix.dtype.itemsize))
    starts = list(range(0, rows, step))
    return starts, [*starts[1:], rows]


def _check_block(
    matrix: RowMatrix, start: int, stop: int
) -> tuple[bytes, Int64Array, int, Int64Array, float]:
    """Return the digest of the rows from ``start`` to ``stop``, then what `_check_chunk`
    returns."""
    hasher, found, row = blake2b(), [], start
    step = max(1, _CHUNK_BYTES // (matrix.shape[1] * matrix.dtype.itemsize))
    for piece in matrix.pieces(start, stop):
        for offset in range(0, len(piece), step):
            chunk = piece[offset : offset + step]
            bad, values, zeros, largest = _check_chunk(chunk)
            found.append((bad + row, values, zeros + row, largest))
            hasher.update(chunk.reshape(-1).view(np.uint8).data)
            row += len(chunk)
    return hasher.digest(), *_together(found)


def _together(found: Sequence[Any]) -> tuple[Int64Array, int, Int64Array, float]:
    """Join what was found in consecutive chunks."""
    bad, values, zeros, largest = zip(*found, strict=True)
    return np.concatenate(bad), sum(values), np.concatenate(zeros), max(largest)


def _check_chunk(chunk: NDArray[Any]) -> tuple[Int64Array, int, Int64Array, float]:
    """Return rows with NaN or Inf, the number of such values, rows of zeros, and the largest
    magnitude, from the bit patterns.

    Without their sign bit, floats order as unsigned integers, with Inf and NaN at the top. So
    float16 needs no slow conversion, and a clean chunk takes one mask and one maximum.
    """
    unsigned = np.dtype(f"u{chunk.dtype.itemsize}")
    infinity = np.array(np.inf, chunk.dtype).view(unsigned)
    magnitude = chunk.view(unsigned) & unsigned.type(np.iinfo(unsigned).max >> 1)
    bad_rows, bad_values = _NO_ROWS, 0
    largest = magnitude.max()
    if largest >= infinity:
        bad = magnitude >= infinity
        bad_rows, bad_values = np.flatnonzero(bad.any(axis=1)), int(bad.sum())
    candidates = np.flatnonzero(magnitude[:, 0] == 0)
    zero_rows = candidates[~magnitude[candidates].any(axis=1)] if candidates.size else _NO_ROWS
    return bad_rows, bad_values, zero_rows, float(largest.view(chunk.dtype))


def long_rows(matrix: RowMatrix, limit: float) -> tuple[Int64Array, float]:
    """Return the rows longer than ``limit``, and the length of the longest row."""
    rows, dim = matrix.shape
    step = max(1, BLOCK_BYTES // (8 * dim))
    lengths = np.concatenate(
        [
            np.linalg.norm(matrix.rows(start, start + step).astype(np.float64), axis=1)
            for start in range(0, rows, step)
        ]
    )
    return np.flatnonzero(lengths > limit), float(lengths.max())
