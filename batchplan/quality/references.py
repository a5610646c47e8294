"""Measures what plans are compared with: all rows, and random plans."""

from collections.abc import Iterator

import numpy as np

from batchplan.quality.losses.distribution import similarities_within
from batchplan.quality.losses.in_batches import batch_statistics, mean_losses
from batchplan.quality.measured import RandomPlans
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.pairs import Pairs
from batchplan.quality.sample import Sample
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_STREAM = int.from_bytes(b"evaluate")  # so that no planner draws the same random numbers
_SAMPLE = int.from_bytes(b"sample")  # nor the random plans of the sample
_BATCH = 64  # of the random plan that strata come from


def drawn_sample(pairs: Pairs, options: EvaluationOptions, runtime: Runtime) -> Sample:
    """Return the rows that are compared with all rows, the same for all plans.

    Strata are rows of about the same loss in one random plan: that predicts their losses against
    all rows so well that the strata hold a few percent of the variance.

    Args:
        pairs: of N rows, unguarded.
    """
    n = pairs.num_rows
    count = options.sampled(n)
    if count is None:
        return Sample(n)
    with runtime.stage("strata"):
        generator = runtime.generator(_SAMPLE)
        rows, losses = generator.permutation(n), np.empty(n)
        offsets = np.append(np.arange(0, n, _BATCH), n)
        forth, back, _ = batch_statistics(pairs, rows, offsets)
        losses[rows] = forth.losses() + back.losses()
        return Sample.draw(np.argsort(losses, kind="stable"), count, generator)


def random_plans(pairs: Pairs, offsets: Int64Array, trials: int, runtime: Runtime) -> RandomPlans:
    """Measure random plans whose batches start at ``offsets``, int64 (batches + 1,)."""
    figures, first = np.empty((3, 2, trials)), np.empty(0)
    with runtime.stage("random batches", total=trials) as advance:
        orders = random_orders(pairs.num_rows, offsets, trials, runtime)
        for trial, rows in enumerate(orders):
            figures[:, :, trial] = mean_losses(pairs, rows, offsets)
            if not trial:
                first = similarities_within(pairs, rows, offsets)
            advance(1)
    losses, allowed, probability = figures
    return RandomPlans(losses, allowed, probability, first)


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
