"""Edges that passed the screen: more than the budget, cut to exactly the budget at the end."""

import numpy as np
import torch

from batchplan.graph.scan import Block
from batchplan.kernels import njit


class Candidates:
    """A bounded store of candidate edges, filled block by block in the order of the rows.

    Attributes:
        stored: candidates in the store.
        certain: those of them without a score.
    """

    def __init__(
        self, num_rows: int, capacity: int, index: torch.dtype, device: torch.device
    ) -> None:
        self.stored = self.certain = 0
        self._counts = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._columns = _room(capacity, index, device)
        self._scores = _room(capacity, torch.float32, device)

    def add(self, block: Block) -> bool:
        """Store a block; False if it does not fit."""
        stop = self.stored + block.columns.numel()
        if stop > self._columns.numel():
            return False
        self._columns[self.stored : stop] = block.columns
        self._scores[self.stored : stop] = block.scores
        rows = slice(block.first_row, block.first_row + block.counts.numel())
        self._counts[rows] = block.counts
        self.stored = stop
        self.certain += block.certain
        return True

    def cut(self, edges: int) -> float:
        """Keep the ``edges`` largest scores, of equal ones the lower (row, column).

        Returns:
            The smallest score kept. Later rows need not bring scores below it; ties of later
            rows lose, since their rows are higher.
        """
        cut = _cut_numpy if self._columns.device.type == "cpu" else _cut_torch
        smallest = cut(
            self._scores[: self.stored], self._columns[: self.stored], self._counts, edges
        )
        self.stored = edges
        return smallest

    def finish(self, weights: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """indptr, indices, and weights if wanted, of what is stored."""
        indptr = torch.cat([self._counts.new_zeros(1), self._counts.cumsum(0)])
        scores = self._scores[: self.stored] if weights else None
        return indptr, self._columns[: self.stored], scores


def _room(capacity: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Host memory is mapped only where it is written, so unused capacity costs nothing there; and
    NumPy asks for large pages, which are mapped faster."""
    if device.type != "cpu":
        return torch.empty(capacity, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(capacity * dtype.itemsize, np.uint8)).view(dtype)


def _cut_torch(
    scores: torch.Tensor, columns: torch.Tensor, counts: torch.Tensor, edges: int
) -> float:
    smallest = scores.kthvalue(scores.numel() - edges + 1).values
    keep = scores > smallest
    tied = (scores == smallest).nonzero()[:, 0]
    keep[tied[: edges - int(keep.sum())]] = True
    kept = torch.cat([counts.new_zeros(1), keep.cumsum(0)])
    ends = counts.cumsum(0)
    counts.copy_(kept[ends] - kept[ends - counts])
    columns[:edges] = columns[keep]
    scores[:edges] = scores[keep]
    return float(smallest)


def _cut_numpy(
    scores: torch.Tensor, columns: torch.Tensor, counts: torch.Tensor, edges: int
) -> float:
    values = scores.numpy()
    scored = values[values < np.inf]
    wanted = edges - (len(values) - len(scored))  # of those with a score
    smallest = np.float32(np.inf)
    if wanted > 0:
        smallest = np.partition(scored, len(scored) - wanted)[len(scored) - wanted]
    ties = edges - np.count_nonzero(values > smallest)
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
