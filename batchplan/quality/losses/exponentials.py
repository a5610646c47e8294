"""Sums exponentials of a tile of X Y^T and finds its largest values, for both directions at once.

exp(s/tau) is computed once for the row and for the column of s. With t = s log2(e)/tau it is
2^k 2^q, where k is t rounded to a whole number and q, in [-1/2, 1/2], the rest. 2^q is a polynomial
in float32, 2^k goes into the exponent of a float64, and the sums are float64: from 2^-1022 to
2^1023 nothing overflows or vanishes, so no shift is needed as long as all |t| are within
`LARGEST_POWER`.

Errors of an exponential, relative: the polynomial 2.6e-9 (fitted at the Chebyshev points of degree
6), its rounding 1.2e-7; and where the processor fuses multiplications and additions, 2e-8 from the
rounding of q, since log2(e)/tau is a sum of two numbers; elsewhere |t| 6e-8, as much as the
rounding of the float32 similarity itself.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.quality.losses.largest import put_in_columns, put_in_row

LARGEST_POWER = 860.0  # so that 2^63 terms stay below 2^1023
STEP = 64  # columns processed together; widths of tiles are multiples of it

_MASKED = -1000.0  # power of a masked entry: 2^-140 of the smallest term, so it adds nothing
_SCALES = 1e-30, 1e30  # well within float32
_P = [1, 0.69314720671, 0.24022651214, 0.05550327214, 0.0096180256, 0.00134004322, 0.00015469732]
_P0, _P1, _P2, _P3, _P4, _P5, _P6 = (np.float32(value) for value in _P)
_TO_WHOLE = np.float32(3 << 22)  # adding it leaves a float32 below 2^21 no bits after the point
_BIAS = np.int32(1023)
_SIGNS = np.int64(-9223372034707292160)  # the sign bits of two float32


class Scale(NamedTuple):
    """log2(e)/tau as a sum of two float32 numbers, and the similarity that stands for -inf.

    ``rough`` equals ``high``, but the compiler must not know: it would compute their products once
    and fuse that with neither of the sums that follow.
    """

    rough: np.float32
    high: np.float32
    low: np.float32
    lowest: np.float32


def scale_of(temperature: float, bound: float) -> Scale | None:
    """Return the scale for similarities up to ``bound``; None if powers would leave the range."""
    exact = math.log2(math.e) / temperature
    if not _SCALES[0] < exact < _SCALES[1] or bound * exact > LARGEST_POWER:
        return None
    high = np.float32(exact)
    return Scale(high, high, np.float32(exact - float(high)), np.float32(_MASKED / exact))


@njit(fastmath={"contract"})
def exponentials(values, scale, parts, powers, terms):  # type: ignore[no-untyped-def]
    """Compute exp(s/tau) of `STEP` similarities.

    Args:
        values: float32 (STEP,); -inf gives 2^-1000.
        scale: from `scale_of`.
        parts, powers: float32 and int32 (STEP,), room for 2^q and k.
        terms: float64 (STEP,), for the result.
    """
    rough, high, low, lowest = scale
    # Small loops without branches, which the compiler vectorises.
    for c in range(STEP):
        value = values[c] if values[c] > lowest else lowest
        whole = (value * rough + _TO_WHOLE) - _TO_WHOLE
        q = (value * high - whole) + value * low
        p = _P6
        p = p * q + _P5
        p = p * q + _P4
        p = p * q + _P3
        p = p * q + _P2
        p = p * q + _P1
        parts[c] = p * q + _P0
        powers[c] = np.int32(whole) + _BIAS
    for c in range(STEP):
        power = np.int64(np.int64(powers[c]) << np.int64(52)).view(np.float64)
        terms[c] = np.float64(parts[c]) * power


class Kept(NamedTuple):
    """The arrays that tiles update, with an element for each row of one side.

    Attributes:
        most: how many of the largest similarities each keeps.
        sums: float64, sums of exponentials.
        allowed: float64, the same over the pairs that a guard allows.
        largest: the arrays of a `Largest`.
    """

    most: int
    sums: NDArray[np.float64]
    allowed: NDArray[np.float64]
    largest: tuple[NDArray[Any], ...]


@njit(fastmath={"contract"})
def take_in(tile, hidden, first_row, first_column, scale, rows, columns):  # type: ignore[no-untyped-def]
    """Update the arrays of the rows and columns of a tile of similarities.

    The order of the sums depends on the tile alone: a row sums its columns in 64 lanes, a column
    its rows one by one.

    Args:
        tile: float32 (R, W), W a multiple of 64; -inf adds nothing.
        hidden: uint8 (R, W), 1 for pairs that a guard forbids; (0, 0) without a guard.
        first_row, first_column: the numbers of the first row and column, for the largest values.
        scale: from `scale_of`.
        rows, columns: `Kept` of R rows and W columns.
    """
    row_most, row_sums, row_allowed, (row_keys, row_counts, row_floors) = rows
    column_most, column_sums, column_allowed, column_largest = columns
    column_keys, column_counts, column_floors = column_largest
    guarded = hidden.size > 0
    lanes, allowed = np.empty(STEP, np.float64), np.empty(STEP, np.float64)
    parts, powers = np.empty(STEP, np.float32), np.empty(STEP, np.int32)
    terms = np.empty(STEP, np.float64)
    above = np.empty(STEP, np.float32)  # whether a value reaches a floor, as its sign bit
    signs = above.view(np.int64)
    hits = np.empty(tile.shape[1] + 1, np.int64)  # one extra, for a write that is not kept
    for r in range(tile.shape[0]):
        line = tile[r]
        lanes[:] = 0
        allowed[:] = 0
        floor = row_floors[r]
        num_hits = np.int64(0)
        for start in range(0, line.size, STEP):
            values = line[start : start + STEP]
            sums = column_sums[start : start + STEP]
            floors = column_floors[start : start + STEP]
            # Small loops without branches, which the compiler vectorises.
            for c in range(STEP):
                by_row, by_column = values[c] - floor, values[c] - floors[c]
                above[c] = by_row if by_row > by_column else by_column
            exponentials(values, scale, parts, powers, terms)
            for c in range(STEP):
                lanes[c] += terms[c]
                sums[c] += terms[c]
            if guarded:
                marks = hidden[r, start : start + STEP]
                some = np.uint8(0)
                for c in range(STEP):
                    some |= marks[c]
                if some:
                    for c in range(STEP):
                        terms[c] = np.float64(0) if marks[c] else terms[c]
                kept = column_allowed[start : start + STEP]
                for c in range(STEP):
                    allowed[c] += terms[c]
                    kept[c] += terms[c]
            all_below = np.int64(-1)
            for w in range(STEP // 2):
                all_below &= signs[w]
            if all_below & _SIGNS != _SIGNS:
                for w in range(STEP // 2):
                    if signs[w] & _SIGNS != _SIGNS:
                        hits[num_hits] = start + 2 * w
                        num_hits += np.int64(above[2 * w] >= 0)
                        hits[num_hits] = start + 2 * w + 1
                        num_hits += np.int64(above[2 * w + 1] >= 0)
        row_sums[r] += lanes.sum()
        row_allowed[r] += allowed.sum()
        places = hits[:num_hits]
        put_in_row(line, places, first_column, row_most, row_keys, row_counts, row_floors, r)
        put_in_columns(
            line, places, first_row + r, column_most, column_keys, column_counts, column_floors
        )
