"""Which rows share a batch: the lookups behind the recalls and the bandwidth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.sample import Sample

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
        pair, batches = self._batches_of(sources)
        hits = self.contains(batches, targets[pair])
        return np.bincount(pair[hits], minlength=len(sources)) > 0

    def met(self, rows: Int64Array, others: Int64Array) -> Int64Array:
        """How many of its others each row meets, summed over the batches of the row: int64 (m,).

        Args:
            rows: int64 (m,).
            others: int64 (m, c), those of each row.
        """
        hits = np.empty(len(rows), np.int64)
        step = max(1, _EDGES_AT_ONCE // others.shape[1])
        for start in range(0, len(rows), step):
            at = slice(start, start + step)
            pair, batches = self._batches_of(rows[at])
            inside = self.contains(batches[:, None], others[at][pair]).sum(axis=1)
            hits[at] = np.bincount(pair, inside, minlength=len(rows[at]))
        return hits

    def entries(self, rows: Int64Array) -> Int64Array:
        """How often the plan holds each row: int64 (m,)."""
        return self._starts[rows + 1] - self._starts[rows]

    def _batches_of(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The batches of the rows, and the place in ``rows`` of the row of each."""
        counts = self.entries(rows)
        place = np.repeat(np.arange(len(rows)), counts)
        nth = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self._batches[self._starts[rows][place] + nth]


@dataclass(frozen=True)
class EdgeStatistics:
    """How a plan treats the edges of a similarity graph.

    Attributes:
        edges: number of edges.
        recall: share of the edges whose two rows share a batch; None where no graph was built.
        bandwidth: the largest distance in the plan's order between the rows of an edge, None if
            no edge has both its rows in the plan, or no graph was built.
    """

    edges: int
    recall: float | None
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


def hard_negative_recall(
    membership: Membership, sample: Sample, hardest: Sequence[Int64Array]
) -> tuple[float, float]:
    """Mean share of an entry's hardest negatives that are in its batch, over all directions, and
    its standard error.

    Args:
        membership: of the plan.
        sample: the rows that stand for all rows.
        hardest: for each direction int64 (S, m), the m hardest negatives of each of these.
    """
    rows = np.arange(sample.num_rows) if sample.rows is None else sample.rows
    wanted = membership.entries(rows) * hardest[0].shape[1]
    total = sample.total(wanted)
    if not total:
        return 0.0, 1.0  # the plan holds no row of the sample: nothing is known
    met = [membership.met(rows, direction) for direction in hardest]
    recall = float(np.mean([sample.total(direction) / total for direction in met]))
    # The error of the linear part of a ratio of two totals (Cochran, section 6.13).
    residuals = np.mean(met, axis=0) - recall * wanted
    return recall, sample.standard_error(residuals) * sample.num_rows / total


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
