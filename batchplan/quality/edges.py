"""Which rows share a batch: recalls of edges and of hard negatives, and the bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.quality.sample import Sample
from batchplan.typing import Int64Array


class Membership(NamedTuple):
    """Where a plan has each row; integers.

    Attributes:
        starts: (N + 1,); the batches of row i are ``batches[starts[i]:starts[i + 1]]``, rising.
        batches: (entries,).
        position: (N,), the first position of each row in the plan, -1 for none.
    """

    starts: NDArray[np.integer]
    batches: NDArray[np.integer]
    position: NDArray[np.integer]

    @classmethod
    def of(cls, rows: Int64Array, offsets: Int64Array, num_rows: int) -> Membership:
        """The membership of N rows in a plan.

        Args:
            rows: int64 (entries,), the rows of all batches, none twice within a batch.
            offsets: int64 (batches + 1,), where each batch starts in them.
            num_rows: N.
        """
        kind: Any = np.int32 if len(rows) < 2**31 else np.int64
        # Entries by row, as a compressed sparse row matrix.
        order = np.argsort(rows, kind="stable")
        counts = np.bincount(rows, minlength=num_rows)
        starts = np.concatenate(([0], np.cumsum(counts)))
        batches = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[order]
        position = np.full(num_rows, -1)
        position[counts > 0] = order[starts[:-1][counts > 0]]
        return cls(starts.astype(kind), batches.astype(kind), position.astype(kind))


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

    def __init__(self, plans: Sequence[Membership]):
        self._plans = plans
        self._edges = 0
        self._together = np.zeros(len(plans), np.int64)
        self._bandwidth = np.full(len(plans), -1)

    def add(self, rows: Int64Array, columns: Int64Array) -> None:
        """Count edges from rows, int64 (m,), to others."""
        self._edges += len(rows)
        for at, membership in enumerate(self._plans):
            together, distance = _count(rows, columns, *membership)
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
    entries = membership.starts[rows + 1] - membership.starts[rows]
    wanted = entries.astype(np.int64) * hardest[0].shape[1]
    total = sample.total(wanted)
    if not total:
        return 0.0, 1.0  # the plan holds no row of the sample: nothing is known
    met = [_met(rows, others, membership.starts, membership.batches) for others in hardest]
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
        together += _shared(i, j, starts, batches) > 0
    return together, distance


@njit
def _met(rows, others, starts, batches):  # type: ignore[no-untyped-def]
    """int64 (m,): how many of its others, (m, c), each row meets, summed over its batches."""
    met = np.zeros(rows.size, np.int64)
    for e in range(rows.size):
        for c in range(others.shape[1]):
            met[e] += _shared(rows[e], others[e, c], starts, batches)
    return met


@njit
def _shared(i, j, starts, batches):  # type: ignore[no-untyped-def]
    """How many batches have both rows."""
    shared = 0
    a, b = starts[i], starts[j]
    while a < starts[i + 1] and b < starts[j + 1]:
        shared += batches[a] == batches[b]
        if batches[a] <= batches[b]:
            a += 1
        else:
            b += 1
    return shared
