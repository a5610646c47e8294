"""Recall of hard negatives: how many of a row's most similar rows share its batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.quality.sample import Sample
from batchplan.typing import Int64Array


class Membership(NamedTuple):
    """The batches of each row; integers.

    Attributes:
        starts: (N + 1,); the batches of row i are ``batches[starts[i]:starts[i + 1]]``, rising.
        batches: (entries,).
    """

    starts: NDArray[np.integer]
    batches: NDArray[np.integer]

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
        return cls(starts.astype(kind), batches.astype(kind))


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
