"""Counts the pairs of a batch whose rows have the same label, and how many to expect."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from batchplan.errors import InputError
from batchplan.typing import Int64Array


@dataclass(frozen=True, kw_only=True)
class FalseNegatives:
    """How many of a plan's in-batch negatives have the label of their anchor.

    The measure of BatchSampler (Yang et al. 2023, section 5.2 and figures 4 to 7).

    Attributes:
        column: the column of the labels, None without a name.
        rate: share of the ordered pairs (i, j), i != j, of all batches whose rows have the same
            label; None if every batch has one row.
        rate_random: the exact expectation of ``rate`` for random batches of the same sizes.
        ratio: rate / rate_random, None if ``rate`` is None or ``rate_random`` is 0.
        pairs: ordered pairs (i, j), i != j, of all batches.
    """

    column: str | None
    rate: float | None
    rate_random: float
    ratio: float | None
    pairs: int


def check_codes(values: ArrayLike, num_rows: int, what: str) -> Int64Array:
    """Return labels as small codes from 0 on: int64 (N,), -1 for none.

    Args:
        values: integers (N,), equal for equal labels, -1 for a row that has none.
        num_rows: N.
        what: the argument's name, for messages.

    Raises:
        InputError: not integers, not N of them, or one below -1.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.shape != (num_rows,) or array.min() < -1:
        raise InputError(
            f"{what}: got {array.dtype} {array.shape}, expected integers ({num_rows},) from -1 on: "
            "a code for each row of the data in the same order, -1 where there is no label"
        )
    # Codes may be large, such as ids. Renumbered, a batch and a label fit into one integer.
    return np.where(array < 0, -1, np.unique(array, return_inverse=True)[1])


def false_negatives(rows: Int64Array, offsets: Int64Array, codes: Int64Array) -> FalseNegatives:
    """Count the pairs of equal labels in all batches; O(entries log entries).

    Args:
        rows: int64 (entries,), the rows of all batches, none twice within a batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        codes: int64 (N,), the label of each row from 0 on, -1 for none, which matches nothing.
    """
    sizes = np.diff(offsets)
    pairs = int((sizes * (sizes - 1)).sum())
    labels = codes[rows]
    kinds = int(codes.max(initial=-1)) + 1
    keys = np.repeat(np.arange(len(sizes)), sizes) * kinds + labels
    counts = np.unique(keys[labels >= 0], return_counts=True)[1]
    rate = int((counts * (counts - 1)).sum()) / pairs if pairs else None

    # Two places of a random batch hold any two distinct rows with equal probability, even if rows
    # are dropped or repeated. So the expectation is that of a random pair of all rows.
    num_rows = len(codes)
    totals = np.bincount(codes[codes >= 0])
    same = int((totals * (totals - 1)).sum())
    rate_random = same / (num_rows * (num_rows - 1))
    return FalseNegatives(
        column=None,
        rate=rate,
        rate_random=rate_random,
        ratio=rate / rate_random if rate is not None and same else None,
        pairs=pairs,
    )
