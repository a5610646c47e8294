"""What plans of the same data are measured against; it depends on a plan's sizes at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.globalpass import GlobalStatistics, global_statistics
from batchplan.quality.histogram import Histogram
from batchplan.quality.rows import sides
from batchplan.quality.trials import random_losses
from batchplan.runtime import Runtime

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.quality.options import EvaluationOptions

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RandomPlans:
    """What random plans with the batch sizes of a plan show.

    Attributes:
        losses: float64 (2, trials), their mean losses, x to y and y to x.
        histogram: of the similarities of the negatives of the first.
    """

    losses: Float64Array
    histogram: Histogram


class References:
    """The data as it is measured, all rows at once, and random plans; each is computed once.

    Attributes:
        x, y: the data, y being x where it is one matrix.
        bound: of abs(x_i . y_j).

    Raises:
        InputError: a row of zeros under cosine, or inner products that float32 cannot hold.
    """

    def __init__(self, embeddings: Embeddings, options: EvaluationOptions, runtime: Runtime):
        self.x, self.y, self.bound = sides(
            embeddings, options.similarity, options.temperature, runtime
        )
        self._options = options
        self._runtime = runtime
        self._all_rows: dict[int, tuple[GlobalStatistics, GlobalStatistics]] = {}
        self._random: dict[bytes, RandomPlans] = {}

    def all_rows(self, batch_size: int) -> tuple[GlobalStatistics, GlobalStatistics]:
        """x to y, and y to x (the same object where y is x), with the oracle of a batch size.

        Those of the last batch size are kept: they are the largest thing of an evaluation.

        Raises:
            ResourceError: not enough memory.
        """
        if batch_size not in self._all_rows:
            self._all_rows.clear()
            self._all_rows[batch_size] = self._pass(batch_size)
        return self._all_rows[batch_size]

    def random(self, offsets: Int64Array) -> RandomPlans:
        """Of the batches that start at ``offsets``, int64 (batches + 1,)."""
        key = offsets.tobytes()
        if key not in self._random:
            histogram = Histogram(self.bound, self.x.device)
            tau, trials = self._options.temperature, self._options.random_trials
            losses = random_losses(self.x, self.y, offsets, tau, trials, self._runtime, histogram)
            self._random[key] = RandomPlans(losses, histogram)
        return self._random[key]

    def _pass(self, batch_size: int) -> tuple[GlobalStatistics, GlobalStatistics]:
        x, y, runtime = self.x, self.y, self._runtime
        pairs = ((x, y),) if x is y else ((x, y), (y, x))
        with runtime.stage("evaluate", total=len(pairs) * x.num_rows) as advance:
            found = [
                global_statistics(
                    *pair,
                    temperature=self._options.temperature,
                    batch_size=batch_size,
                    memory=runtime.memory_left(),
                    advance=advance,
                )
                for pair in pairs
            ]
        return found[0], found[-1]
