"""The statistics of a plan and its data from which metrics are computed."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.plans import Plan
from batchplan.quality.sample import Sample

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

HARDEST_KEPT = 10  # hard negatives per row


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """The logits of each plan entry in its batch, in one direction; all float64 (entries,).

    A logit is a similarity over the temperature. The batch includes the positive.

    Attributes:
        positive: logit of the positive.
        log_sum: log-sum-exp of the batch's logits.
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
    """How many of a row's largest similarities to other rows are needed.

    Attributes:
        others: N - 1.
        negatives: k - 1, the negatives of the oracle, at most all others.
        hardest: the negatives whose row numbers are needed, at most `HARDEST_KEPT`.
        kept: the larger of both. An oracle of all rows has the global loss and needs none.
    """

    others: int
    negatives: int
    hardest: int
    kept: int

    @classmethod
    def of(cls, num_rows: int, batch_size: int) -> "Wanted":
        """For an oracle of this batch size."""
        others = num_rows - 1
        negatives, hardest = min(batch_size - 1, others), min(HARDEST_KEPT, others)
        return cls(others, negatives, hardest, max(hardest, negatives if negatives < others else 0))


@dataclass(frozen=True, eq=False)
class GlobalStatistics:
    """The logits of S rows against all N rows of the other side, in one direction.

    S is N, unless rows are sampled. A logit is a similarity over the temperature.

    Attributes:
        positive: float64 (S,), logit of the positive.
        peak: float64 (S,), the largest logit of all N; with mined negatives, that of a row is the
            log-sum-exp of the logits of its documents.
        log_sum: float64 (S,), log-sum-exp of all N logits.
        oracle: float64 (S,), log-sum-exp of the positive and the k - 1 largest others.
        hardest: int64 (S, min(10, N - 1)), the most similar rows j != i, best first; ties go to
            the lower index.
    """

    positive: Float64Array
    peak: Float64Array
    log_sum: Float64Array
    oracle: Float64Array
    hardest: Int64Array

    @classmethod
    def empty(cls, num_rows: int, hardest: int) -> "GlobalStatistics":
        """Room for the results of N rows, each of which `fill` writes once."""
        positive, peak, log_sum, oracle = np.empty((4, num_rows))
        return cls(positive, peak, log_sum, oracle, np.empty((num_rows, hardest), np.int64))

    def fill(
        self,
        at: slice,
        positive: torch.Tensor,
        others: torch.Tensor,
        best: torch.Tensor,
        columns: torch.Tensor,
        wanted: Wanted,
        own: torch.Tensor | None = None,
    ) -> None:
        """Write the results of some rows.

        Args:
            at: the R rows.
            positive: float64 (R,), as the attribute.
            others: float64 (R,), log-sum-exp of the logits of all other rows.
            best: float64 (R, wanted.kept), the largest logits of other rows, best first.
            columns: int64 (R, wanted.kept), those rows.
            wanted: how many each result needs.
            own: float64 (R,), the logit of each row with itself, if its own mined negatives make
                that another than the positive's.
        """
        own = positive if own is None else own
        self.positive[at] = positive.cpu().numpy()
        highest = torch.maximum(best[:, 0], own) if wanted.kept else own
        self.peak[at] = highest.cpu().numpy()
        self.log_sum[at] = torch.logaddexp(others, own).cpu().numpy()
        if wanted.negatives < wanted.others:
            others = best[:, : wanted.negatives].logsumexp(dim=1)
        self.oracle[at] = torch.logaddexp(others, own).cpu().numpy()
        self.hardest[at] = columns[:, : wanted.hardest].cpu().numpy()


@dataclass(frozen=True, eq=False)
class Measured:
    """A plan and its statistics; tuples of two hold x to y and y to x.

    Attributes:
        plan: the plan.
        temperature: tau.
        inside: each plan entry against its batch.
        sample: the rows that are compared with all rows.
        outside: each of these against all rows, with an oracle of the plan's batch size.
        random: float64 (2, trials), the mean losses of random plans with the same batch sizes.
        codes: ``labels`` and ``group``, where passed: int64 (N,), from 0 on, -1 for none.
    """

    plan: Plan
    temperature: float
    inside: tuple[BatchStatistics, BatchStatistics]
    sample: Sample
    outside: tuple[GlobalStatistics, GlobalStatistics]
    random: Float64Array
    codes: dict[str, Int64Array]
