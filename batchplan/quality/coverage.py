"""Counts which rows a plan covers, and how often."""

from dataclasses import dataclass

import numpy as np

from batchplan.typing import Int64Array


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of the data a plan covers. It matters for planners that sample.

    Attributes:
        rows_seen: distinct rows in the plan.
        rows_never_seen: N - rows_seen.
        share_seen: rows_seen / N.
        repeats: entries beyond the first of each row.
        most_repeated: entries of the most frequent row.
    """

    rows_seen: int
    rows_never_seen: int
    share_seen: float
    repeats: int
    most_repeated: int


def coverage(rows: Int64Array, num_rows: int) -> Coverage:
    """Return the coverage of N rows by the entries of a plan, int64 (entries,)."""
    counts = np.bincount(rows, minlength=num_rows)
    seen = int(np.count_nonzero(counts))
    return Coverage(
        rows_seen=seen,
        rows_never_seen=num_rows - seen,
        share_seen=seen / num_rows,
        repeats=len(rows) - seen,
        most_repeated=int(counts.max()),
    )
