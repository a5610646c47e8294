"""Which rows share a batch: the lookups behind the recalls and the bandwidth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.quality.sample import Sample

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_EDGES_AT_ONCE = 1 << 20


class Lookup(NamedTuple):
    """Where a plan has each row; integers.

    Attributes:
        starts: (N + 1,); the batches of row i are ``batches[starts[i]:starts[i + 1]]``, rising.
        batches: (entries,).
        position: (N,), the first position of each row in the plan, -1 for none.
    """

    starts: NDArray[np.integer]
    batches: NDArray[np.integer]
    position: NDArray[np.integer]


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

    def lookup(self) -> Lookup:
        """All that `EdgeCounts` needs."""
        kind: Any = np.int32 if len(self._batches) < 2**31 else np.int64
        arrays = self._starts, self._batches, self.position
        return Lookup(*(array.astype(kind) for array in arrays))

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


class EdgeCounts:
    """Counts edges, directed pairs of rows, by whether plans put their rows together.

    Args:
        plans: where each plan has the rows.
    """

    def __init__(self, plans: Sequence[Lookup]):
        self._plans = plans
        self._edges = 0
        self._together = np.zeros(len(plans), np.int64)
        self._bandwidth = np.full(len(plans), -1)

    def add(self, rows: Int64Array, columns: Int64Array) -> None:
        """Count edges from rows, int64 (m,), to others."""
        self._edges += len(rows)
        for at, lookup in enumerate(self._plans):
            together, distance = _count(rows, columns, *lookup)
            self._together[at] += together
            self._bandwidth[at] = max(self._bandwidth[at], distance)

    def statistics(self) -> list[EdgeStatistics]:
        """Those of each plan; there is at least one edge."""
        return [
            EdgeStatistics(self._edges, together / self._edges, None if most < 0 else most)
            for together, most in zip(
                self._together.tolist(), self._bandwidth.tolist(), strict=True
            )
        ]


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


@njit
def _count(rows, others, starts, batches, position):  # type: ignore[no-untyped-def]
    """How many pairs share a batch, and the largest distance between the first positions of two
    rows, -1 if the plan has no pair."""
    together, distance = 0, -1
    for e in range(rows.size):
        i, j = rows[e], others[e]
        if position[i] >= 0 and position[j] >= 0:
            distance = max(distance, abs(position[i] - position[j]))
        a, b = starts[i], starts[j]
        while a < starts[i + 1] and b < starts[j + 1]:
            if batches[a] == batches[b]:
                together += 1
                break
            if batches[a] < batches[b]:
                a += 1
            else:
                b += 1
    return together, distance
