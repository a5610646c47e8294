"""Finds equal rows. Hashes find candidates, comparisons confirm them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data.matrix import RowMatrix
from batchplan.runtime import silent
from batchplan.typing import BoolArray, Int64Array

UInt64Array = NDArray[np.uint64]

_CHUNK_BYTES = 1 << 20  # of the widened rows of a step: they stay in the processor's cache
_COMPARED_BYTES = 8 << 20  # of the rows compared in a step


def first_equals(matrix: RowMatrix, advance: Callable[[int], None] = silent) -> Int64Array:
    """Return the lowest row that equals each row, which may be the row itself: int64 (N,).

    Stored values are compared without normalising; -0.0 equals 0.0. This takes one pass over the
    rows, and a second one over the candidates.

    Args:
        matrix: N rows of finite values.
        advance: called with the number of rows done.
    """
    hashes = _hashes(matrix, advance)
    first = np.arange(len(hashes))
    waiting = np.argsort(hashes, kind="stable")  # the lowest of equal rows comes first
    keys = hashes[waiting]
    begins = np.append(True, keys[1:] != keys[:-1])
    shared = ~(begins & np.append(begins[1:], True))
    waiting, keys = waiting[shared], keys[shared]
    while len(waiting):  # once, unless different rows share a hash
        begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        leaders = np.repeat(waiting[begins], np.diff(np.append(begins, len(waiting))))
        equal = _equal(matrix, waiting, leaders)
        first[waiting[equal]] = leaders[equal]
        waiting, keys = waiting[~equal], keys[~equal]
    return first


def any_repeated(codes: Int64Array) -> bool:
    """Return whether two of the codes (N,) of 0 and more are equal."""
    return bool((np.bincount(codes[codes >= 0]) > 1).any())


def repeated_codes(numbers: Int64Array) -> Int64Array:
    """Return codes from 0 of the numbers (N,), from 0, that occur again, in their order; -1 for
    others."""
    repeated = np.bincount(numbers) > 1
    codes = np.where(repeated, np.cumsum(repeated) - 1, -1)[numbers]
    return np.asarray(codes, np.int64)


def document_codes(matrices: Sequence[RowMatrix]) -> Int64Array:
    """int64 (M, N): hashes of 64 bits, equal for rows that have equal values in any of the M
    matrices of N rows."""
    widest = np.result_type(*(matrix.dtype for matrix in matrices))
    return np.array([_hashes(matrix, silent, widest) for matrix in matrices]).view(np.int64)


def _hashes(
    matrix: RowMatrix, advance: Callable[[int], None], dtype: np.dtype[Any] | None = None
) -> UInt64Array:
    """Return a number per row, equal for equal rows: the bits of its values, as ``dtype`` or as
    they are stored, times random weights."""
    n, dim = matrix.shape
    dtype = matrix.dtype if dtype is None else dtype
    # The weights are fixed: poor ones would cost comparisons, not correctness.
    weights = np.random.Generator(np.random.Philox(0)).integers(0, 2**64, dim, dtype=np.uint64)
    unsigned = f"u{dtype.itemsize}"
    negative_zero = np.array(-0.0, dtype).view(unsigned)
    hashes = np.empty(n, np.uint64)
    step = max(1, _CHUNK_BYTES // (8 * dim))
    for start in range(0, n, step):
        rows = matrix.rows(start, start + step).astype(dtype, copy=False)
        bits = rows.view(unsigned).astype(np.uint64)
        bits[bits == negative_zero] = 0
        hashes[start : start + step] = bits @ weights
        advance(len(bits))
    return hashes


def _equal(matrix: RowMatrix, rows: Int64Array, others: Int64Array) -> BoolArray:
    """Return whether row ``rows[k]`` equals row ``others[k]``; both are (m,)."""
    equal = np.empty(len(rows), np.bool_)
    step = max(1, _COMPARED_BYTES // (matrix.shape[1] * matrix.dtype.itemsize))
    for start in range(0, len(rows), step):
        at = slice(start, start + step)
        equal[at] = (matrix.take(rows[at]) == matrix.take(others[at])).all(axis=1)
    return equal
