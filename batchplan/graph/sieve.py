"""The best of many scored pairs in little memory, from one or more passes over all pairs.

Pairs rank by score, then row, then column. In a pass, pairs before a first rank are edges, and
pairs after a last rank are not. Those between are in doubt: they are counted by rank, and kept
while there is room. If all were kept, the best of them complete the edges. Otherwise the counts
show between which ranks the last edge is, and in the next pass only those are in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchplan.graph.scan import Block
from batchplan.graph.threshold import Bracket
from batchplan.kernels import njit, ordered
from batchplan.typing import Int64Array

Take: TypeAlias = Callable[[Int64Array, Int64Array], object]

PAIR_BYTES = 32  # for the rank and column of a pair that is kept, and to sort it
_BITS = 16  # of the number of a bin, in which pairs are counted
_ROWS = 1 << 31  # ranks of a score, one for each row
_AT_ONCE = 1 << 20  # pairs


class Ranks(NamedTuple):
    """From the first rank to the last; the first is the best."""

    first: int
    last: int

    @classmethod
    def of(cls, scores: Bracket) -> Ranks:
        """The ranks of scores within a bracket."""
        upper, lower = _bits(np.array([scores.upper, scores.lower], np.float32))
        return cls(int(_rank(upper, 0)), int(_rank(lower, _ROWS - 1)))

    def scores(self) -> Bracket:
        """The scores of the last rank and of the first."""
        orders = (-(np.array([self.last, self.first]) // _ROWS)).astype(np.int32)
        bits = np.array([ordered(order) for order in orders], np.int32)  # its own inverse
        return Bracket(*bits.view(np.float32).tolist())


class Sieve:
    """One pass.

    Args:
        ranks: those of the pairs in doubt.
        room: how many of these to keep; a pass with a single rank in doubt needs N.
        take: called with rows and columns, int64 (m,), of edges.

    Attributes:
        certain: pairs that rank before those in doubt; they are taken at once.
        stored: these and the pairs in doubt, whether kept or not.
    """

    def __init__(self, ranks: Ranks, room: int, take: Take) -> None:
        self.certain = self.stored = 0
        self._ranks, self._take = ranks, take
        self._shift = max(0, (ranks.last - ranks.first).bit_length() - _BITS)  # from rank to bin
        self._counts = np.zeros(1 << _BITS, np.int64)
        self._kept = np.empty((2, room), np.int64)  # ranks and columns; mapped where written
        self._filled = 0

    def add(self, block: Block) -> bool:
        """Take or count the pairs of a block; always True, as a sieve is never full."""
        columns, bits = block.columns.numpy(), _bits(block.scores.numpy())
        taken = np.empty((2, len(columns)), np.int64)
        certain, self._filled = _sift(
            block.first_row, block.counts.numpy(), columns, bits, *self._ranks, self._shift,
            taken, self._counts, self._kept, self._filled,
        )  # fmt: skip
        self._take(*taken[:, :certain])
        self.certain += certain
        self.stored = self.certain + int(self._counts.sum())
        return True

    @property
    def complete(self) -> bool:
        """Whether all pairs in doubt were kept."""
        return self.stored - self.certain == self._filled

    def finish(self, edges: int) -> None:
        """Take the best pairs in doubt, so that ``edges`` are taken; the sieve is complete."""
        last, left = self._last_bin(edges)
        tied = 0  # pairs of the bin, which move to the front
        for start in range(0, self._filled, _AT_ONCE):
            part = self._kept[:, start : min(start + _AT_ONCE, self._filled)]
            bins = self._bins(part[0])
            self._take_kept(part[:, bins < last])
            some = part[:, bins == last]
            self._kept[:, tied : tied + some.shape[1]] = some
            tied += some.shape[1]
        ranks, columns = self._kept[:, :tied]
        best = np.lexsort((columns, ranks))[:left]
        for start in range(0, left, _AT_ONCE):
            self._take_kept(self._kept[:, best[start : start + _AT_ONCE]])

    def cut(self, edges: int) -> float:
        """A score that each of the best ``edges`` reaches, if there were that many pairs."""
        return self.narrowed(edges).scores().lower

    def narrowed(self, edges: int) -> Ranks:
        """The ranks of the bin of the last edge, if there were that many pairs."""
        last, _ = self._last_bin(edges)
        first = self._ranks.first + (last << self._shift)
        return Ranks(first, min(first + (1 << self._shift) - 1, self._ranks.last))

    def _last_bin(self, edges: int) -> tuple[int, int]:
        """The bin of the last edge, and how many of its pairs are edges."""
        ends = self._counts.cumsum()
        last = int(np.searchsorted(ends, edges - self.certain))
        return last, int(edges - self.certain - ends[last] + self._counts[last])

    def _bins(self, ranks: Int64Array) -> Int64Array:
        bins: Int64Array = (ranks - self._ranks.first) >> self._shift
        return bins

    def _take_kept(self, pairs: Int64Array) -> None:
        self._take(pairs[0] % _ROWS, pairs[1])


def _bits(scores: NDArray[np.float32]) -> NDArray[np.int32]:
    return (scores + np.float32(0)).view(np.int32)  # minus zero becomes zero


@njit
def _rank(bits, row):  # type: ignore[no-untyped-def]
    """The rank of a pair: lower for higher scores, and for lower rows of equal scores."""
    return row - np.int64(ordered(bits)) * _ROWS


@njit
def _sift(  # type: ignore[no-untyped-def]
    first_row, counts, columns, bits, first, last, shift, taken, counted, kept, filled
):
    """Write the certain edges; count the pairs in doubt, and keep them while there is room. Returns
    how many are certain and how many are kept."""
    certain = end = 0
    for r in range(counts.size):
        start, end = end, end + counts[r]
        for e in range(start, end):
            rank = _rank(bits[e], first_row + r)
            if rank < first:
                taken[0, certain], taken[1, certain] = first_row + r, columns[e]
                certain += 1
            elif rank <= last:
                counted[(rank - first) >> shift] += 1
                if filled < kept.shape[1]:
                    kept[0, filled], kept[1, filled] = rank, columns[e]
                    filled += 1
    return certain, filled
