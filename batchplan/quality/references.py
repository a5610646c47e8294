"""What plans of the same data are compared with; it depends on their batch sizes only."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.reference import load_reference
from batchplan.quality.losses.all_rows import global_statistics
from batchplan.quality.losses.batches import Detail, batch_statistics, mean_losses
from batchplan.quality.losses.distribution import Histogram
from batchplan.quality.measured import GlobalStatistics
from batchplan.quality.mined import sides
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.sample import Sample
from batchplan.runtime import Runtime

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_STREAM = int.from_bytes(b"evaluate")  # so that no planner draws the same random numbers
_SAMPLE = int.from_bytes(b"sample")  # nor the random plans of the sample
_BATCH = 64  # of the random plan that strata come from


@dataclass(frozen=True, eq=False)
class RandomPlans:
    """Random plans with the batch sizes of a plan.

    Attributes:
        losses: float64 (2, trials), their mean losses, x to y and y to x.
        histogram: of the negatives' similarities in the first of them; more would add little.
    """

    losses: Float64Array
    histogram: Histogram


class References:
    """The data, its statistics over all rows, and random plans; each is computed once.

    Attributes:
        embeddings, options, runtime: as passed.
        x, y: the data; the same object where it is one matrix.
        mined: its mined negatives.
        bound: the largest possible abs(x_i . y_j).
        judge: x, y and bound of the embeddings by which the guard is judged: those of the data,
            unless the options name a reference.
        fingerprint: of that reference; None without one.

    Raises:
        InputError: a row of zeros under cosine, inner products that float32 cannot hold, or as
            `load_reference`.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        options: EvaluationOptions,
        runtime: Runtime,
        rows: Int64Array | None = None,
    ):
        reference = load_reference(options, embeddings, runtime)
        self.fingerprint = None if reference is None else reference.fingerprint
        if rows is not None:
            embeddings = embeddings.take(rows)
            reference = reference and reference.take(rows)
        self.embeddings = embeddings
        self.options = options
        self.runtime = runtime
        self.x, self.y, self.mined, self.bound = sides(
            embeddings, options.similarity, options.temperature, runtime
        )
        self.judge = self.x, self.y, self.bound
        if reference is not None:
            x, y, _, bound = sides(reference, options.similarity, options.temperature, runtime)
            self.judge = x, y, bound
        self._all_rows: dict[int, tuple[GlobalStatistics, GlobalStatistics]] = {}
        self._random: dict[bytes, RandomPlans] = {}

    @cached_property
    def sample(self) -> Sample:
        """The rows that are compared with all rows, the same for all plans.

        Strata are rows of about the same loss in one random plan: that predicts their losses
        against all rows so well that the strata hold a few percent of the variance.
        """
        n, runtime = self.x.num_rows, self.runtime
        count = self.options.sampled(n)
        if count is None:
            return Sample(n)
        with runtime.stage("strata"):
            generator = runtime.generator(_SAMPLE)
            rows, losses = generator.permutation(n), np.empty(n)
            offsets = np.append(np.arange(0, n, _BATCH), n)
            tau = self.options.temperature
            inside = batch_statistics(self.x, self.y, self.mined, rows, offsets, tau)
            losses[rows] = sum(direction.losses() for direction in inside)
            return Sample.draw(np.argsort(losses, kind="stable"), count, generator)

    def all_rows(self, batch_size: int) -> tuple[GlobalStatistics, GlobalStatistics]:
        """The sample x to y, and y to x (the same object where y is x), with the oracle of a batch
        size.

        Only the last batch size is kept, since these statistics take the most memory.

        Raises:
            ResourceError: not enough memory.
        """
        if batch_size not in self._all_rows:
            self._all_rows.clear()
            self._all_rows[batch_size] = self._pass(batch_size)
        return self._all_rows[batch_size]

    def random(self, offsets: Int64Array) -> RandomPlans:
        """Random plans whose batches start at ``offsets``, int64 (batches + 1,)."""
        key = offsets.tobytes()
        if key not in self._random:
            self._random[key] = self._trials(offsets)
        return self._random[key]

    def _pass(self, batch_size: int) -> tuple[GlobalStatistics, GlobalStatistics]:
        x, y, runtime, rows = self.x, self.y, self.runtime, self.sample.rows
        ways = 2 if y is not x or self.mined else 1
        with runtime.stage("evaluate", total=ways * x.num_rows) as advance:
            return global_statistics(
                x,
                y,
                self.mined,
                bound=self.bound,
                temperature=self.options.temperature,
                batch_size=batch_size,
                runtime=runtime,
                advance=advance,
                rows=rows,
            )

    def _trials(self, offsets: Int64Array) -> RandomPlans:
        trials, tau = self.options.random_trials, self.options.temperature
        losses = np.empty((2, trials))
        histogram = Histogram(self.bound, self.x.device)
        with self.runtime.stage("random batches", total=trials) as advance:
            orders = random_orders(self.x.num_rows, offsets, trials, self.runtime)
            for trial, rows in enumerate(orders):
                data = self.x, self.y, self.mined, rows, offsets, tau
                if trial:
                    losses[:, trial] = mean_losses(*data, self.bound)
                else:
                    first = batch_statistics(*data, Detail(histogram))
                    losses[:, 0] = [direction.losses().mean() for direction in first]
                advance(1)
        return RandomPlans(losses, histogram)


def random_orders(
    num_rows: int, offsets: Int64Array, trials: int, runtime: Runtime
) -> Iterator[Int64Array]:
    """`random_rows` of each trial, which depend on the seed and the trial only."""
    for trial in range(trials):
        yield random_rows(runtime.generator(_STREAM, trial), num_rows, offsets)


def random_rows(generator: np.random.Generator, num_rows: int, offsets: Int64Array) -> Int64Array:
    """int64 (entries,): rows in random order, each once before any repeats.

    No batch gets a row twice: where a permutation of the rows ends within a batch, the next one
    starts with rows that the batch does not have yet.
    """
    rows = generator.permutation(num_rows)
    while len(rows) < offsets[-1]:
        begun = rows[offsets[np.searchsorted(offsets, len(rows), side="right") - 1] :]
        more = generator.permutation(num_rows)
        repeated = np.isin(more, begun)
        rows = np.concatenate((rows, more[~repeated], more[repeated]))
    return rows[: offsets[-1]]
