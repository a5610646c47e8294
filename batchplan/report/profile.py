"""What an average hides: the loss of each batch, and how sure the model is of each entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.inbatch import batch_statistics
from batchplan.quality.rows import Side

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Profile:
    """A plan batch by batch and entry by entry, as means of both directions.

    Attributes:
        batch_losses: float64 (batches,), the NT-Xent loss of the entries of each batch, in nats.
        positive_probability: float64 (entries,), the softmax probability of each entry's positive
            in its batch.
    """

    batch_losses: Float64Array
    positive_probability: Float64Array


def profile(x: Side, y: Side, rows: Int64Array, offsets: Int64Array, temperature: float) -> Profile:
    """Measure each batch and each entry of a plan; see `batch_statistics` for the arguments."""
    losses = [one.losses() for one in batch_statistics(x, y, rows, offsets, temperature)]
    mean = (losses[0] + losses[1]) / 2
    return Profile(
        np.add.reduceat(mean, offsets[:-1]) / np.diff(offsets),
        (np.exp(-losses[0]) + np.exp(-losses[1])) / 2,
    )
