"""A store of edges that passed the screen, which is cut to the budget at the end."""

import numpy as np
import torch

from batchplan.kernels import njit
from batchplan.planners.papers.gcbs.scan import EdgeBlock

_AT_ONCE = 1 << 24  # scores that a device sifts at a time, some 30 bytes each


class EdgeStore:
    """A bounded store of candidate edges, filled block by block in the order of the rows.

    Attributes:
        stored: candidates in the store.
        certain: candidates without a score.
    """

    def __init__(
        self, num_rows: int, capacity: int, index: torch.dtype, device: torch.device
    ) -> None:
        self.stored = self.certain = 0
        self._counts = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._columns = _room(capacity, index, device)
        self._scores = _room(capacity, torch.float32, device)

    @property
    def device(self) -> torch.device:
        """The device of the store."""
        return self._scores.device

    @property
    def room(self) -> int:
        """How many more candidates fit."""
        return self._scores.numel() - self.stored

    def add(self, block: EdgeBlock) -> bool:
        """Store a block; False if it does not fit. A row may come in several blocks."""
        stop = self.stored + block.columns.numel()
        if stop > self._columns.numel():
            return False
        self._columns[self.stored : stop] = block.columns
        self._scores[self.stored : stop] = block.scores
        rows = slice(block.first_row, block.first_row + block.counts.numel())
        self._counts[rows] += block.counts
        self.stored = stop
        self.certain += block.certain
        return True

    def cut(self, edges: int) -> float:
        """Keep the ``edges`` largest scores; ties go to the lower (row, column).

        Returns:
            The smallest score kept. Lower scores of later rows are not needed, nor equal ones, as
            ties go to the lower row.
        """
        cut = _cut_numpy if self._columns.device.type == "cpu" else _cut_torch
        smallest = cut(
            self._scores[: self.stored], self._columns[: self.stored], self._counts, edges
        )
        self.stored = edges
        return smallest

    def finish(self, weights: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """indptr, indices and, if asked for, weights of the stored candidates."""
        indptr = torch.cat([self._counts.new_zeros(1), self._counts.cumsum(0)])
        scores = self._scores[: self.stored] if weights else None
        return indptr, self._columns[: self.stored], scores


def _room(capacity: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Uninitialised memory. On the host, unused capacity is free, as memory is mapped when it is
    written. NumPy asks for large pages, which are mapped faster."""
    if device.type != "cpu":
        return torch.empty(capacity, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(capacity * dtype.itemsize, np.uint8)).view(dtype)


def _cut_torch(
    scores: torch.Tensor, columns: torch.Tensor, counts: torch.Tensor, edges: int
) -> float:
    """Cut in place, a part at a time, so that a device needs no memory besides the store."""
    smallest = kth_largest(scores, edges)
    ties = edges - int(sum((part > smallest).sum() for part in torch.split(scores, _AT_ONCE)))
    ends = counts.cumsum(0)
    kept = torch.zeros_like(ends)
    target = 0
    for start in range(0, len(scores), _AT_ONCE):
        part = scores[start : start + _AT_ONCE]
        tied = part == smallest
        keep = (part > smallest) | (tied & (tied.cumsum(0) <= ties))
        ties = max(0, ties - int(tied.sum()))
        # Rows that end in this part keep what was kept before it and up to their end.
        first, last = torch.searchsorted(ends, ends.new_tensor([start, start + len(part)]) + 1)
        running = keep.cumsum(0)
        kept[first:last] = target + running[ends[first:last] - start - 1]
        stop = target + int(running[-1])
        columns[target:stop] = columns[start : start + _AT_ONCE][keep]
        scores[target:stop] = part[keep]
        target = stop
    counts.copy_(kept.diff(prepend=kept.new_zeros(1)))
    return smallest


def kth_largest(values: torch.Tensor, k: int) -> float:
    """The k-th largest of float32 values, k from 1 on.

    Two rounds count the upper and then the lower halves of the bit patterns. So nothing is sorted,
    and only a part of the values is copied at a time.
    """
    prefix = 0
    for shift in (16, 0):
        counts = torch.zeros(1 << 16, dtype=torch.int64, device=values.device)
        for part in torch.split(values, _AT_ONCE):
            bits = part.view(torch.int32)
            order = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the values
            digits = order >> 16
            digits = digits + (1 << 15) if shift else order[digits == prefix] & 0xFFFF
            counts += torch.bincount(digits, minlength=1 << 16)
        above = counts.flip(0).cumsum(0)
        place = int(torch.searchsorted(above, k))  # the first with k or more values at or above it
        k -= int(above[place - 1]) if place else 0
        digit = (1 << 16) - 1 - place
        prefix = digit - (1 << 15) if shift else (prefix << 16) | digit
    bits = torch.tensor(prefix ^ ((prefix >> 31) & 0x7FFFFFFF), dtype=torch.int32)
    return float(bits.view(torch.float32))


def _cut_numpy(
    scores: torch.Tensor, columns: torch.Tensor, counts: torch.Tensor, edges: int
) -> float:
    values = scores.numpy()
    scored = values[values < np.inf]
    wanted = edges - (len(values) - len(scored))  # of those with a score
    smallest, ties = np.float32(np.inf), edges
    if wanted > 0:
        smallest = np.partition(scored, len(scored) - wanted)[len(scored) - wanted]
        ties = wanted - int(np.count_nonzero(scored > smallest))
    _keep_largest(values, columns.numpy(), counts.numpy(), smallest, ties)
    return float(smallest)


@njit
def _keep_largest(scores, columns, counts, smallest, ties):  # type: ignore[no-untyped-def]
    source = target = 0
    for i in range(counts.size):
        begin = target
        for e in range(source, source + counts[i]):
            tied = scores[e] == smallest and ties > 0
            ties -= tied
            if tied or scores[e] > smallest:
                columns[target] = columns[e]
                scores[target] = scores[e]
                target += 1
        source += counts[i]
        counts[i] = target - begin
