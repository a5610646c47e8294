"""What the passes over a plan and its data leave: all that a metric is computed from."""

from dataclasses import dataclass

import numpy as np
import torch
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


@dataclass(frozen=True)
class Wanted:
    """How many of a row's largest similarities to others are needed.

    Attributes:
        others: N - 1.
        negatives: k - 1, those that the oracle sees, at most all others.
        found: those whose rows are of interest, at most `HARDEST_KEPT`.
        kept: the most of both. A batch of all rows has the global loss: keeping every value for it
            would only cost memory.
    """

    others: int
    negatives: int
    found: int
    kept: int

    @classmethod
    def of(cls, num_rows: int, batch_size: int) -> "Wanted":
        """Of the batch size of an oracle."""
        others = num_rows - 1
        negatives, found = min(batch_size - 1, others), min(HARDEST_KEPT, others)
        return cls(others, negatives, found, max(found, negatives if negatives < others else 0))


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

    @classmethod
    def empty(cls, num_rows: int, found: int) -> "GlobalStatistics":
        """Room for the results of N rows, of which each is filled once."""
        positive, peak, log_sum, oracle = np.empty((4, num_rows))
        return cls(positive, peak, log_sum, oracle, np.empty((num_rows, found), np.int64))

    def fill(
        self,
        at: slice,
        positive: torch.Tensor,
        others: torch.Tensor,
        best: torch.Tensor,
        columns: torch.Tensor,
        wanted: Wanted,
    ) -> None:
        """Write the results of some rows.

        Args:
            at: which rows, R of them.
            positive: float64 (R,), as the attribute.
            others: float64 (R,), log sum exp of the logits of all other rows.
            best: float64 (R, wanted.kept), the largest logits of other rows, best first.
            columns: int64 (R, wanted.kept), which rows those are.
            wanted: how many each result needs.
        """
        self.positive[at] = positive.cpu().numpy()
        highest = torch.maximum(best[:, 0], positive) if wanted.kept else positive
        self.peak[at] = highest.cpu().numpy()
        self.log_sum[at] = torch.logaddexp(others, positive).cpu().numpy()
        if wanted.negatives < wanted.others:
            others = best[:, : wanted.negatives].logsumexp(dim=1)
        self.oracle[at] = torch.logaddexp(others, positive).cpu().numpy()
        self.hardest[at] = columns[:, : wanted.found].cpu().numpy()


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
