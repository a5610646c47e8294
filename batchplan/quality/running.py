"""What is kept while the tiles of X Y^T stream past: log sum exp, and each row's largest values."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit, prange

_LOWEST = torch.finfo(torch.float32).min
_SCAN = 64  # values looked at together; most pieces hold nothing large enough


class RunningLogSumExp:
    """One log sum exp for each element of a tensor of some shape, fed tile by tile.

    It keeps the largest value so far and the sum of exp(value - largest), so that nothing
    overflows or vanishes at any temperature (Milakov and Gimelshein 2018, Online normalizer
    calculation for softmax).

    Attributes:
        peak: float64, the largest value so far.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device):
        # Finite, so that (-inf) - peak is -inf and not NaN for the entries that a tile masks.
        self.peak = torch.full(shape, _LOWEST, dtype=torch.float64, device=device)
        self._total = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, values: torch.Tensor, dim: int, at: slice, *, consume: bool = False) -> None:
        """Take in a tile of values, reduced along its dimension ``dim``.

        Args:
            values: float32 or float64, each below 3e38; -inf counts for nothing.
            dim: the dimension to reduce, which the tensors of this object do not have.
            at: which part of their last dimension the tile belongs to.
            consume: may the memory of ``values`` be overwritten?
        """
        peak = torch.maximum(self.peak[..., at], values.amax(dim))
        shift = peak.to(values.dtype).unsqueeze(dim)  # exact: peaks are values seen
        scaled = torch.sub(values, shift, out=values if consume else None).exp_()
        kept = self._total[..., at] * torch.exp(self.peak[..., at] - peak)
        self._total[..., at] = kept + scaled.sum(dim)
        self.peak[..., at] = peak

    def result(self) -> torch.Tensor:
        """float64: the log of the sums; -inf where nothing came."""
        return self.peak + self._total.log()


def hardest(rows: int, count: int, device: torch.device) -> HeapHardest | KeyHardest:
    """Keeps the ``count`` largest values of each row, the lower column first among equals.

    There are two implementations of the rule: bounded heaps for the CPU, where `torch.topk` is
    slow, and `torch.topk` on integer keys elsewhere.
    """
    return HeapHardest(rows, count) if device.type == "cpu" else KeyHardest(rows, count, device)


class HeapHardest:
    """A heap for each row, its worst entry on top: most values are rejected by one comparison."""

    def __init__(self, rows: int, count: int):
        self._values = np.full((rows, count), -np.inf, np.float32)
        self._columns = np.full((rows, count), np.iinfo(np.int64).max, np.int64)

    def offer(self, tile: torch.Tensor, first_column: int) -> None:
        """Take in a float32 (rows, columns) tile, tiles by ascending column; -inf is never kept."""
        _offer(tile.numpy(), first_column, self._values, self._columns)

    def sorted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """float32 values and int64 columns, both (rows, count), best first. Call it once, last."""
        _sort(self._values, self._columns)
        return torch.from_numpy(self._values), torch.from_numpy(self._columns)


class KeyHardest:
    """Value and column in one int64 that orders as the rule does, so that no two keys tie."""

    def __init__(self, rows: int, count: int, device: torch.device):
        lowest = torch.iinfo(torch.int64).min
        self._keys = torch.full((rows, count), lowest, dtype=torch.int64, device=device)

    def offer(self, tile: torch.Tensor, first_column: int) -> None:
        """As that of `HeapHardest`."""
        bits = (tile + 0.0).view(torch.int32)  # + 0.0 turns -0.0, which ties with 0.0, into it
        ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
        columns = torch.arange(first_column, first_column + tile.shape[1], device=tile.device)
        keys = (ordered << 32) | (0xFFFFFFFF - columns)
        both = torch.cat((self._keys, keys), dim=1)
        self._keys = both.topk(self._keys.shape[1], dim=1).values

    def sorted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As that of `HeapHardest`."""
        columns = 0xFFFFFFFF - (self._keys & 0xFFFFFFFF)
        ordered = (self._keys >> 32).int()
        values = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).view(torch.float32)
        return values, columns


@njit
def _worse(value: float, column: int, than_value: float, than_column: int) -> bool:
    return value < than_value or (value == than_value and column > than_column)


@njit
def _sink(
    values: NDArray[np.float32], columns: NDArray[np.int64], size: int, value: float, column: int
) -> None:
    """Put an entry in place of the top of a heap of ``size`` and restore the order."""
    node = 0
    while 2 * node + 1 < size:
        child = 2 * node + 1
        right = child + 1
        if right < size and _worse(values[right], columns[right], values[child], columns[child]):
            child = right
        if _worse(value, column, values[child], columns[child]):
            break
        values[node] = values[child]
        columns[node] = columns[child]
        node = child
    values[node] = value
    columns[node] = column


@njit(parallel=True)
def _offer(
    tile: NDArray[np.float32],
    first_column: int,
    values: NDArray[np.float32],
    columns: NDArray[np.int64],
) -> None:
    rows, width = tile.shape
    size = values.shape[1]
    for row in prange(rows):
        line = tile[row]
        worst = values[row, 0]
        for start in range(0, width, _SCAN):
            stop = min(start + _SCAN, width)
            hits = 0
            for column in range(start, stop):  # counts, without a branch: vectorised
                hits += line[column] > worst
            if hits == 0:
                continue
            for column in range(start, stop):
                # Columns ascend, so a value equal to the worst one kept would lose the tie.
                if line[column] > worst:
                    _sink(values[row], columns[row], size, line[column], first_column + column)
                    worst = values[row, 0]


@njit(parallel=True)
def _sort(values: NDArray[np.float32], columns: NDArray[np.int64]) -> None:
    """Heap sort: the worst entry goes to the end again and again, which leaves the best first."""
    for row in prange(values.shape[0]):
        for last in range(values.shape[1] - 1, 0, -1):
            value, column = values[row, last], columns[row, last]
            values[row, last] = values[row, 0]
            columns[row, last] = columns[row, 0]
            _sink(values[row], columns[row], last, value, column)
