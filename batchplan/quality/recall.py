"""Recall of hard negatives: how many of a row's most similar rows share its batch."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from batchplan.quality.sample import Sample
from batchplan.typing import Int64Array


def membership(rows: Int64Array, offsets: Int64Array, num_rows: int) -> csr_array:
    """Return an (N, batches) matrix with a 1 for each row of each batch.

    Args:
        rows: int64 (entries,), the rows of all batches, none twice within a batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        num_rows: N.
    """
    batches = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    ones = np.ones(len(rows), np.int64)
    return csr_array((ones, (rows, batches)), shape=(num_rows, len(offsets) - 1))


def hard_negative_recall(
    members: csr_array, sample: Sample, hardest: Sequence[Int64Array]
) -> tuple[float, float]:
    """Return the mean share of an entry's hardest negatives that are in its batch, over all
    directions, and its standard error.

    Args:
        members: the `membership` of a plan.
        sample: the rows that stand for all rows.
        hardest: for each direction int64 (S, m), the m hardest negatives of each row of the sample.
    """
    own = members if sample.rows is None else members[sample.rows]
    wanted = own.sum(axis=1) * hardest[0].shape[1]
    met = [
        sum(own.multiply(members[others]).sum(axis=1) for others in direction.T)
        for direction in hardest
    ]
    return sample.ratio(np.mean(met, axis=0), wanted)
