"""Finds pairs to look at: the most similar rows of the hardest batches."""

from dataclasses import dataclass

import numpy as np

from batchplan.quality.losses.in_batches import gather
from batchplan.quality.rows import MeasuredRows
from batchplan.typing import Float64Array, Int64Array

_BATCHES = 4  # of a plan, each with a pair


@dataclass(frozen=True)
class Example:
    """A row and the negative of its batch that is most similar to it.

    Attributes:
        batch: its number in the plan, from 0.
        row, negative: of the data: x of the first, y of the second.
        similarity: of the two.
        positive: of the row's own pair.
    """

    batch: int
    row: int
    negative: int
    similarity: float
    positive: float


def hardest_pairs(
    x: MeasuredRows, y: MeasuredRows, rows: Int64Array, offsets: Int64Array, losses: Float64Array
) -> list[Example]:
    """Return the most similar pair of each of the batches with the highest losses.

    Args:
        x, y: the data.
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
        losses: float64 (batches,).
    """
    examples = []
    for batch in np.argsort(-losses, kind="stable")[:_BATCHES].tolist():
        members = rows[None, offsets[batch] : offsets[batch + 1]].copy()  # writable, for torch
        similar = (gather(x, members)[0] @ gather(y, members)[0].T).cpu().numpy()
        own = similar.diagonal().copy()
        np.fill_diagonal(similar, -np.inf)
        if len(own) > 1:
            i, j = np.unravel_index(np.argmax(similar), similar.shape)
            row, negative = int(members[0, i]), int(members[0, j])
            examples.append(Example(batch, row, negative, float(similar[i, j]), float(own[i])))
    return examples
