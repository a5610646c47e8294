"""Which rows share a batch: the lookups behind the recalls and the bandwidth."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_EDGES_AT_ONCE = 1 << 20


class Membership:
    """Looks up rows in the batches of a plan; a row may be in several.

    Args:
        rows: int64 (entries,), the rows of all batches, none twice within a batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        num_rows: N.
    """

    def __init__(self, rows: Int64Array, offsets: Int64Array, num_rows: int):
        self.batch_of_entry = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        self._num_rows = num_rows
        # Entries by row, for the batches of a row, as a compressed sparse row matrix.
        order = np.argsort(rows, kind="stable")
        counts = np.bincount(rows, minlength=num_rows)
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        self._batches = self.batch_of_entry[order]
        self._once = bool(counts.max() <= 1)
        #: int64 (N,), the first position of each row in the plan, -1 for none.
        self.position = np.full(num_rows, -1)
        self.position[counts > 0] = order[self._starts[:-1][counts > 0]]
        if not self._once:
            self._keys = np.sort(self.batch_of_entry * num_rows + rows)

    def contains(self, batches: Int64Array, rows: Int64Array) -> BoolArray:
        """Whether each batch has the row; the two arrays broadcast."""
        if self._once:
            place = self.position[rows]
            inside: BoolArray = (self.batch_of_entry[place] == batches) & (place >= 0)
        else:
            keys = batches * self._num_rows + rows
            place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            inside = self._keys[place] == keys
        return inside

    def together(self, sources: Int64Array, targets: Int64Array) -> BoolArray:
        """Whether some batch has both rows of each pair; both arrays are (m,)."""
        firsts = self._starts[sources]
        counts = self._starts[sources + 1] - firsts
        pair = np.repeat(np.arange(len(sources)), counts)
        nth = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        hits = self.contains(self._batches[firsts[pair] + nth], targets[pair])
        return np.bincount(pair[hits], minlength=len(sources)) > 0


@dataclass(frozen=True)
class EdgeStatistics:
    """How a plan treats the edges of a similarity graph.

    Attributes:
        edges: number of edges.
        recall: share of the edges whose two rows share a batch.
        bandwidth: the largest distance in the plan's order between the rows of an edge, None if
            no edge has both its rows in the plan.
    """

    edges: int
    recall: float
    bandwidth: int | None


def edge_statistics(
    indptr: Int64Array, indices: NDArray[np.integer], membership: Membership
) -> EdgeStatistics:
    """Of at least one directed edge (i, j), j in ``indices[indptr[i]:indptr[i + 1]]``."""
    together, bandwidth = 0, -1
    for sources, targets in _edges(indptr, indices):
        together += int(membership.together(sources, targets).sum())
        ends = membership.position[sources], membership.position[targets]
        placed = (ends[0] >= 0) & (ends[1] >= 0)
        if placed.any():
            bandwidth = max(bandwidth, int(np.abs(ends[0] - ends[1])[placed].max()))
    edges = len(indices)
    return EdgeStatistics(edges, together / edges, bandwidth if bandwidth >= 0 else None)


def hard_negative_recall(membership: Membership, rows: Int64Array, hardest: Int64Array) -> float:
    """Mean share of an entry's hardest negatives that are in its batch.

    Args:
        membership: of the plan.
        rows: int64 (entries,), the plan's rows.
        hardest: int64 (N, m), each row's m hardest negatives.
    """
    hits = 0
    step = max(1, _EDGES_AT_ONCE // hardest.shape[1])
    for start in range(0, len(rows), step):
        batches = membership.batch_of_entry[start : start + step, None]
        hits += int(membership.contains(batches, hardest[rows[start : start + step]]).sum())
    return float(hits / (len(rows) * hardest.shape[1]))


def _edges(
    indptr: Int64Array, indices: NDArray[np.integer]
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """(sources, targets), a bounded number of edges at a time."""
    for start in range(0, len(indices), _EDGES_AT_ONCE):
        stop = min(start + _EDGES_AT_ONCE, len(indices))
        first, last = np.searchsorted(indptr, (start, stop - 1), side="right") - 1
        bounds = np.clip(indptr[first : last + 2], start, stop)
        sources = np.repeat(np.arange(first, last + 1), bounds[1:] - bounds[:-1])
        yield sources, indices[start:stop].astype(np.int64)
