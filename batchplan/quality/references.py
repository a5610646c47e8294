"""Measures what plans are compared with: all rows, and random plans."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchplan.plans import Plan
from batchplan.quality.losses.all_rows import global_statistics
from batchplan.quality.losses.distribution import Distribution
from batchplan.quality.losses.in_batches import batch_statistics, mean_losses
from batchplan.quality.losses.tiles import MOST_KEPT
from batchplan.quality.measured import GlobalStatistics
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.pairs import Pairs
from batchplan.quality.sample import Sample
from batchplan.runtime import Runtime
from batchplan.typing import Float64Array, Int64Array

_STREAM = int.from_bytes(b"evaluate")  # so that no planner draws the same random numbers
_SAMPLE = int.from_bytes(b"sample")  # nor the random plans of the sample
_BATCH = 64  # of the random plan that strata come from


@dataclass(frozen=True, eq=False)
class RandomPlans:
    """Random plans with the batch sizes of a plan.

    Attributes:
        losses: float64 (2, trials), their mean losses, x to y and y to x.
        allowed: the same over the pairs that the guard allows.
        detail: of the first of them; more would add little.
    """

    losses: Float64Array
    allowed: Float64Array
    detail: Distribution


class References:
    """Statistics of the data that several plans share; each is computed once.

    Attributes:
        pairs: the data.
    """

    def __init__(
        self, pairs: Pairs, plans: Sequence[Plan], options: EvaluationOptions, runtime: Runtime
    ):
        self.pairs = pairs
        self._options = options
        self._runtime = runtime
        self._sizes = {plan.batch_size for plan in plans}
        self._all_rows: dict[tuple[int, ...], tuple[GlobalStatistics, GlobalStatistics]] = {}
        self._random: dict[bytes, RandomPlans] = {}

    @cached_property
    def sample(self) -> Sample:
        """The rows that are compared with all rows, the same for all plans.

        Strata are rows of about the same loss in one random plan: that predicts their losses
        against all rows so well that the strata hold a few percent of the variance.
        """
        n, runtime = self.pairs.num_rows, self._runtime
        count = self._options.sampled(n)
        if count is None:
            return Sample(n)
        with runtime.stage("strata"):
            generator = runtime.generator(_SAMPLE)
            rows, losses = generator.permutation(n), np.empty(n)
            offsets = np.append(np.arange(0, n, _BATCH), n)
            forth, back, _ = batch_statistics(self.pairs.unguarded(), rows, offsets)
            losses[rows] = forth.losses() + back.losses()
            return Sample.draw(np.argsort(losses, kind="stable"), count, generator)

    def all_rows(self, batch_size: int) -> tuple[GlobalStatistics, GlobalStatistics]:
        """Measure the sample against all rows, x to y and y to x, with oracles of a batch size.

        Raises:
            ResourceError: not enough memory.
        """
        # Huge batches have a pass of their own, so that they change no digit of the others.
        sizes = {size for size in self._sizes if size <= MOST_KEPT} or {batch_size}
        key = tuple(sorted(sizes)) if batch_size in sizes else (batch_size,)
        if key not in self._all_rows:
            with self._runtime.stage("evaluate", total=self.pairs.num_rows) as advance:
                self._all_rows[key] = global_statistics(
                    self.pairs, key, self._runtime, advance, self.sample.rows
                )
        return self._all_rows[key]

    def random(self, offsets: Int64Array) -> RandomPlans:
        """Measure random plans whose batches start at ``offsets``, int64 (batches + 1,)."""
        key = offsets.tobytes()
        if key not in self._random:
            self._random[key] = self._trials(offsets)
        return self._random[key]

    def _trials(self, offsets: Int64Array) -> RandomPlans:
        trials, pairs = self._options.random_trials, self.pairs
        losses = np.empty((2, 2, trials))
        detail = Distribution(pairs.bound, pairs.x.device)
        with self._runtime.stage("random batches", total=trials) as advance:
            orders = random_orders(pairs.num_rows, offsets, trials, self._runtime)
            for trial, rows in enumerate(orders):
                if not trial:
                    batch_statistics(pairs.unguarded(), rows, offsets, detail)
                found = mean_losses(pairs, rows, offsets)
                losses[:, :, trial] = found.every, found.allowed
                advance(1)
        return RandomPlans(losses[0], losses[1], detail)


def random_orders(
    num_rows: int, offsets: Int64Array, trials: int, runtime: Runtime
) -> Iterator[Int64Array]:
    """Yield the `random_rows` of each trial, which depend on the seed and the trial only."""
    for trial in range(trials):
        yield random_rows(runtime.generator(_STREAM, trial), num_rows, offsets)


def random_rows(generator: np.random.Generator, num_rows: int, offsets: Int64Array) -> Int64Array:
    """Return rows in random order, int64 (entries,): each row occurs once before any repeats.

    No batch gets a row twice: if a permutation of the rows ends within a batch, the next one
    starts with rows that the batch does not have yet.
    """
    rows = generator.permutation(num_rows)
    while len(rows) < offsets[-1]:
        begun = rows[offsets[np.searchsorted(offsets, len(rows), side="right") - 1] :]
        more = generator.permutation(num_rows)
        repeated = np.isin(more, begun)
        rows = np.concatenate((rows, more[~repeated], more[repeated]))
    return rows[: offsets[-1]]
