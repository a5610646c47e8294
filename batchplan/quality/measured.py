"""The statistics that metrics are computed from: of the batches, and of rows against all rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from batchplan.plans import Plan
from batchplan.quality.edges import Edges
from batchplan.quality.recall import membership
from batchplan.quality.sample import Sample
from batchplan.typing import Float64Array, Int64Array

HARDEST_KEPT = 10  # hard negatives per row
RECALLED = (1, HARDEST_KEPT)  # of these, whose recall is measured


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """The logits of each plan entry in its batch, in one direction; all float64 (entries,).

    A logit is a similarity over the temperature. The batch includes the positive.

    Attributes:
        positive: logit of the positive.
        log_sum: log-sum-exp of the batch's logits.
        peak: the largest of them.
        total: their sum.
        least: the smallest logit of another row, infinite in a batch of one.
        allowed: log-sum-exp of the positive and of the pairs that the guard allows.
    """

    positive: Float64Array
    log_sum: Float64Array
    peak: Float64Array
    total: Float64Array
    least: Float64Array
    allowed: Float64Array

    def losses(self) -> Float64Array:
        """The NT-Xent loss of each entry, in nats (GCBS definition 3.2)."""
        return self.log_sum - self.positive


@dataclass(frozen=True)
class Needed:
    """How many of a row's largest similarities to other rows are needed.

    Attributes:
        others: N - 1.
        negatives: k - 1, the negatives of the oracle of batch size k; at most all others.
        hardest: the negatives whose row numbers are needed, at most `HARDEST_KEPT`.
        kept: the largest of these. An oracle of all rows has the global loss and needs none.
    """

    others: int
    negatives: int
    hardest: int
    kept: int

    @classmethod
    def of(cls, num_rows: int, batch_size: int) -> "Needed":
        """Return what the oracle of this batch size needs."""
        others = num_rows - 1
        negatives, hardest = min(batch_size - 1, others), min(HARDEST_KEPT, others)
        return cls(others, negatives, hardest, max(hardest, negatives if negatives < others else 0))


class Found(NamedTuple):
    """Statistics of R rows against all rows of the other side; see `GlobalStatistics`.

    Attributes:
        positive: float64 (R,).
        itself: float64 (R,), the logit of each row with itself. Own mined negatives count.
        others: float64 (R,), log-sum-exp of the logits of all other rows.
        allowed: the same of the rows that the guard allows.
        broken: int64 (R,).
        best: float64 (R, wanted.kept), the largest logits of other rows, best first.
        columns: int64 (R, wanted.kept), those rows.
    """

    positive: torch.Tensor
    itself: torch.Tensor
    others: torch.Tensor
    allowed: torch.Tensor
    broken: torch.Tensor
    best: torch.Tensor
    columns: torch.Tensor


@dataclass(frozen=True, eq=False)
class GlobalStatistics:
    """The logits of S rows against all N rows of the other side, in one direction.

    S is N, unless rows are sampled. A logit is a similarity over the temperature.

    Attributes:
        positive: float64 (S,), logit of the positive.
        log_sum: float64 (S,), log-sum-exp of all N logits.
        peak: float64 (S,), the largest of them.
        oracle: float64 (S,), log-sum-exp of the positive and the k - 1 largest others, for the
            batch size k.
        hardest: int64 (S, min(10, N - 1)), the most similar rows j != i, best first; ties go to
            the lower index.
        allowed: float64 (S,), log-sum-exp of the positive and of the pairs that the guard allows.
        broken: int64 (S,), the pairs that break the guard, of both directions.
    """

    positive: Float64Array
    log_sum: Float64Array
    peak: Float64Array
    oracle: Float64Array
    hardest: Int64Array
    allowed: Float64Array
    broken: Int64Array

    @classmethod
    def empty(cls, num_rows: int, wanted: Needed) -> "GlobalStatistics":
        """Return room for the results of N rows, which `fill` writes."""
        positive, log_sum, peak, oracle, allowed = np.empty((5, num_rows))
        hardest = np.empty((num_rows, wanted.hardest), np.int64)
        broken = np.empty(num_rows, np.int64)
        return cls(positive, log_sum, peak, oracle, hardest, allowed, broken)

    def fill(self, at: slice, found: Found, wanted: Needed) -> None:
        """Write the results of the rows ``at``."""
        best, itself = found.best, found.itself
        self.positive[at] = found.positive.cpu().numpy()
        self.log_sum[at] = torch.logaddexp(found.others, itself).cpu().numpy()
        self.peak[at] = torch.maximum(best[:, 0], itself).cpu().numpy()
        self.allowed[at] = torch.logaddexp(found.allowed, itself).cpu().numpy()
        others = found.others
        if wanted.negatives < wanted.others:
            others = best[:, : wanted.negatives].contiguous().logsumexp(dim=1)
        self.oracle[at] = torch.logaddexp(others, itself).cpu().numpy()
        self.hardest[at] = found.columns[:, : wanted.hardest].cpu().numpy()
        self.broken[at] = found.broken.cpu().numpy()


@dataclass(frozen=True, eq=False)
class RandomPlans:
    """Random plans with the batch sizes of a plan.

    Attributes:
        losses: float64 (2, trials), their mean losses, x to y and y to x.
        allowed: the same over the pairs that the guard allows.
        probability: the same of their mean probabilities of the positive.
        similarities: those within the first of them, float64; more would add little.
    """

    losses: Float64Array
    allowed: Float64Array
    probability: Float64Array
    similarities: Float64Array


@dataclass(frozen=True, eq=False)
class Measured:
    """A plan and its statistics. Tuples of two are x to y and y to x.

    Attributes:
        plan: the plan.
        temperature: tau.
        largest_logit: the largest possible similarity over the temperature, in magnitude.
        inside: each plan entry against its batch.
        sample: the rows that are compared with all rows.
        outside: each of these against all rows.
        random: random plans with the same batch sizes.
        edges: the largest similarities; None if they are not wanted.
    """

    plan: Plan
    temperature: float
    largest_logit: float
    inside: tuple[BatchStatistics, BatchStatistics]
    sample: Sample
    outside: tuple[GlobalStatistics, GlobalStatistics]
    random: RandomPlans
    edges: Edges | None

    @cached_property
    def members(self) -> csr_array:
        """The `membership` of the plan."""
        return membership(self.plan.rows, self.plan.batch_offsets, self.sample.num_rows)


class Estimate(NamedTuple):
    """The value of a metric and its standard error, 0 without a sample."""

    value: float
    error: float
