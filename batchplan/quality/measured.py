"""What the passes over a plan and its data leave: all that a metric is computed from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchplan.plans import Plan

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

HARDEST_KEPT = 10  # hard negatives of each row


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """What each entry of a plan sees in its batch, in one direction; each is float64 (entries,).

    All logits are similarities over the temperature, the positive's included.

    Attributes:
        positive: logit of the entry and its own pair.
        log_sum: log sum exp of the batch's logits.
        peak, floor: the largest and the smallest of them.
    """

    positive: Float64Array
    log_sum: Float64Array
    peak: Float64Array
    floor: Float64Array

    def losses(self) -> Float64Array:
        """The NT-Xent loss of each entry, in nats (GCBS definition 3.2)."""
        return self.log_sum - self.positive


@dataclass(frozen=True, eq=False)
class GlobalStatistics:
    """What each of the N rows of one direction sees among all N rows of the other side.

    All logits are similarities over the temperature.

    Attributes:
        positive: float64 (N,), the logit of the row and its own pair.
        peak: float64 (N,), the largest logit of all N.
        log_sum: float64 (N,), log sum exp of all N logits.
        oracle: float64 (N,), log sum exp of the positive and the k - 1 largest others.
        hardest: int64 (N, min(10, N - 1)), the rows j != i of the largest similarities, best
            first, the lower index first among equals.
    """

    positive: Float64Array
    peak: Float64Array
    log_sum: Float64Array
    oracle: Float64Array
    hardest: Int64Array


@dataclass(frozen=True, eq=False)
class Measured:
    """A plan and what its entries see. Pairs are of the two directions, x to y and y to x.

    Attributes:
        plan: the plan.
        temperature: tau.
        inside: each entry of the plan in its batch.
        outside: each row of the data among all rows, for the batch size of the plan.
        random: float64 (2, trials), the mean losses of random plans with the same batch sizes.
        codes: by ``labels`` and ``group``, those given: int64 (N,), from 0 on, -1 for none.
    """

    plan: Plan
    temperature: float
    inside: tuple[BatchStatistics, BatchStatistics]
    outside: tuple[GlobalStatistics, GlobalStatistics]
    random: Float64Array
    codes: dict[str, Int64Array]
