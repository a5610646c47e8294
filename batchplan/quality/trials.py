"""Random plans to compare a plan with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.histogram import Histogram
from batchplan.quality.inbatch import Negatives, batch_statistics
from batchplan.quality.rows import Side
from batchplan.runtime import Runtime

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_STREAM = int.from_bytes(b"evaluate")  # so that no planner draws the same random numbers


def random_losses(
    x: Side,
    y: Side,
    offsets: Int64Array,
    temperature: float,
    trials: int,
    runtime: Runtime,
    histogram: Histogram | None = None,
) -> Float64Array:
    """The mean in-batch loss of random plans with the batch sizes of a plan.

    Args:
        x, y: the data.
        offsets: int64 (batches + 1,), where each batch starts.
        temperature: tau.
        trials: number of random plans.
        runtime: gives the seed, and is told of the progress.
        histogram: takes in the negatives of the first plan, if given; it has so many that the
            others would tell little more.

    Returns:
        float64 (2, trials): x to y, and y to x.
    """
    losses = np.empty((2, trials))
    with runtime.stage("random batches", total=trials) as advance:
        for trial, rows in enumerate(random_orders(x.num_rows, offsets, trials, runtime)):
            watched = Negatives(histogram) if histogram is not None and trial == 0 else None
            found = batch_statistics(x, y, rows, offsets, temperature, watched)
            losses[:, trial] = [direction.losses().mean() for direction in found]
            advance(1)
    return losses


def random_orders(
    num_rows: int, offsets: Int64Array, trials: int, runtime: Runtime
) -> Iterator[Int64Array]:
    """`random_rows` of each trial, the same ones whenever the seed is."""
    for trial in range(trials):
        yield random_rows(runtime.generator(_STREAM, trial), num_rows, offsets)


def random_rows(generator: np.random.Generator, num_rows: int, offsets: Int64Array) -> Int64Array:
    """int64 (entries,): rows drawn in random order, each once before any comes again.

    No batch gets a row twice: where one permutation of the rows ends within a batch, the next one
    begins with other rows than that batch has already.
    """
    rows = generator.permutation(num_rows)
    while len(rows) < offsets[-1]:
        begun = rows[offsets[np.searchsorted(offsets, len(rows), side="right") - 1] :]
        more = generator.permutation(num_rows)
        repeated = np.isin(more, begun)
        rows = np.concatenate((rows, more[~repeated], more[repeated]))
    return rows[: offsets[-1]]
