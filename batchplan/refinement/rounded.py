"""Rows rounded to 8 bits, which swaps are searched with.

A product of float32 rows and the copies of these rows take most of the time of a swap. Whole
numbers of 8 bits take a quarter of the bytes, and processors multiply them several times as fast.
Their sums are exact, so they are the same on any processor and in any order.

Rows are centred first, as in `graph.screen`: z = x - mu and w = y - nu are rounded to multiples of
1/127 of their largest number, and x_i . y_j = z_i . w_j + x_i . nu + w_j . mu.
"""

from concurrent.futures import Executor
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch

from batchplan.kernels import njit
from batchplan.typing import Float32Array, Int64Array

_MOST = 127  # of a rounded number
_AT_ONCE = 1024  # rows, whose temporaries stay in the cache; also numbers of an exact float32 sum
_WORST = 1 / 16  # standard deviation of the error of a logit; plans are as hard up to at least this


class RoundedSide(NamedTuple):
    """The rows of one side.

    Attributes:
        codes: int8 (N, d).
        factors: float32 (N,), by which the codes of a row are multiplied.
        shifts: float32 (N,), what the products of a row have in addition.
    """

    codes: torch.Tensor
    factors: Float32Array
    shifts: Float32Array


class Rounded(NamedTuple):
    """Both sides, x and y."""

    x: RoundedSide
    y: RoundedSide

    def products(self, members: Int64Array) -> torch.Tensor:
        """float32 (blocks, m, m): x_i . y_j of the rows (blocks, m) of each block."""
        count, m = members.shape
        rows = torch.from_numpy(members.ravel())
        x, y = (side.codes.index_select(0, rows).view(count, m, -1) for side in self)
        integers = torch.empty((count, m, m), dtype=torch.int32)
        if _multiplies_bytes():
            for block in range(count):
                torch._int_mm(x[block], y[block].T, out=integers[block])
        else:
            integers.zero_()
            for start in range(0, x.shape[2], _AT_ONCE):  # below 2^24, float32 sums are exact
                some = slice(start, start + _AT_ONCE)
                integers += torch.bmm(x[..., some].float(), y[..., some].float().mT).int()
        similarities = np.empty((count, m, m), np.float32)
        _scale_all(integers.numpy(), members, self.x[1:], self.y[1:], similarities)
        return torch.from_numpy(similarities)

    def exact(self, members: Int64Array) -> torch.Tensor:
        """float64 (m, m): `products` of one block (m,), without rounding of the products."""
        (x, a, p), (y, b, q) = (
            tuple(torch.as_tensor(part)[members].double() for part in side) for side in self
        )
        return a[:, None] * b * (x @ y.mT) + p[:, None] + q


def round_rows(
    x: torch.Tensor, y: torch.Tensor, temperature: float, pool: Executor
) -> Rounded | None:
    """Round the rows of both sides, float32 (N, d) each; y may be x. Returns None if rounding would
    change the logits too much."""
    means = x.mean(0).double(), y.mean(0).double()
    found = [_side(side, mean, pool) for side, mean in ((x, means[0]), (y, means[1]))]
    (codes_x, factors_x, length_x, residue_x), (codes_y, factors_y, length_y, residue_y) = found
    # Errors of the numbers of a row are independent of the numbers of the other row.
    error = sqrt((residue_x * length_y + residue_y * length_x) / max(1, x.shape[1]))
    if not error <= _WORST * temperature:
        return None
    shifts = (x @ means[1].float()).numpy(), ((y @ means[0].float()) - means[0] @ means[1]).numpy()
    return Rounded(
        RoundedSide(codes_x, factors_x, shifts[0]),
        RoundedSide(codes_y, factors_y, shifts[1].astype(np.float32)),
    )


def _side(
    rows: torch.Tensor, mean: torch.Tensor, pool: Executor
) -> tuple[torch.Tensor, Float32Array, float, float]:
    """The codes and factors of a side, and the mean squared length of a row and of its error."""
    n = len(rows)
    codes = np.empty(rows.shape, np.int8)
    factors = np.empty(n, np.float32)
    sums = np.empty((-(-n // _AT_ONCE), 2))
    centre = mean.float().numpy()

    def work(start: int) -> None:
        some = slice(start, start + _AT_ONCE)
        sums[start // _AT_ONCE] = _round(rows.numpy()[some], centre, codes[some], factors[some])

    for _ in pool.map(work, range(0, n, _AT_ONCE)):
        pass
    length, residue = sums.sum(0) / max(1, n)
    return torch.from_numpy(codes), factors, float(length), float(residue)


def _multiplies_bytes() -> bool:
    """Whether the processor multiplies whole numbers of 8 bits faster than float32, and adds them
    without overflow."""
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return wide and getattr(torch.cpu, "_is_vnni_supported", lambda: False)()


@njit
def _round(rows, centre, codes, factors):  # type: ignore[no-untyped-def]
    """Fill the codes and factors of some rows; return the sums of squares of the numbers of all
    rows and of their errors."""
    length = residue = 0.0
    centred = np.empty(centre.size, np.float32)
    for r in range(factors.size):
        largest = np.float32(0)
        for k in range(centre.size):
            centred[k] = rows[r, k] - centre[k]
            largest = max(largest, abs(centred[k]))
        factor = factors[r] = largest / np.float32(_MOST)
        inverse = np.float32(_MOST) / largest if largest > 0 else np.float32(0)
        for k in range(centre.size):
            rounded = np.rint(centred[k] * inverse)
            codes[r, k] = np.int8(rounded)
            length += np.float64(centred[k]) ** 2
            residue += np.float64(centred[k] - rounded * factor) ** 2
    return length, residue


@njit
def _scale_all(integers, members, x, y, out):  # type: ignore[no-untyped-def]
    factors, shifts = x
    for block in range(len(members)):
        rows = members[block]
        factor, shift = y[0][rows], y[1][rows]
        for i in range(rows.size):
            a, p = factors[rows[i]], shifts[rows[i]]
            for j in range(rows.size):
                out[block, i, j] = a * factor[j] * np.float32(integers[block, i, j]) + (
                    p + shift[j]
                )
