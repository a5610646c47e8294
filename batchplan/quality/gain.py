"""Measures how far a planner raised its objective, and how many too similar pairs it left.

The objective is the mean loss over allowed pairs, less the penalty of each too similar pair. Both
are measured on some batches, enough for two digits, so that a summary costs no pass over the data.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from batchplan.data import Embeddings
from batchplan.plans import Plan
from batchplan.plans.steps import take_batches
from batchplan.quality.facts import RowFacts
from batchplan.quality.losses.in_batches import batch_statistics, pairs_within
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.pairs import Pairs, guarded_pairs, unguarded_pairs
from batchplan.quality.references import random_rows
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_STREAM = int.from_bytes(b"gain")
_ROWS = 1 << 12  # of the batches that are measured
_PAIRS = 32  # at random for each of them: the share of too similar ones is good to 0.1 points


@dataclass(frozen=True)
class Batches:
    """Figures of some batches.

    Attributes:
        objective: the loss less the penalties, in nats a row.
        loss: over allowed pairs, the mean of both directions, in nats a row.
        loss_error: its standard error, as if rows were independent.
        false_negatives: of the pairs, those that break the guard.
        too_similar: of the pairs, those that break its limit.
    """

    objective: float
    loss: float
    loss_error: float
    false_negatives: float
    too_similar: float


@dataclass(frozen=True)
class Gain:
    """The figures of a plan, of random batches, and of the plan that it improves.

    Attributes:
        limited: whether a limit says which pairs are too similar.
        guarded: whether a limit or groups say which are likely false negatives.
    """

    limited: bool
    guarded: bool
    plan: Batches
    random: Batches
    before: Batches | None


def measured_gain(
    plan: Plan,
    embeddings: Embeddings,
    facts: RowFacts,
    options: EvaluationOptions,
    penalty: float,
    runtime: Runtime,
    *,
    before: Plan | None = None,
    most: int = _ROWS,
) -> Gain:
    """Measure the objective of a plan, of random batches and of the plan that it improves.

    Args:
        plan: of the N pairs.
        embeddings: N pairs.
        facts: the groups and known answers of the rows, and the reference that judges the limit.
        options: temperature, similarity and limit.
        penalty: nats for each too similar pair; 0 for none.
        runtime: device and progress; its seed draws the batches.
        before: another plan of the same data.
        most: rows of the batches that are measured, unless one has more.
    """
    generator = runtime.generator(_STREAM)
    with runtime.stage("measure"):
        measured = [plan] if before is None else [plan, before]
        parts = [_some(one.rows, one.batch_offsets, generator, most) for one in measured]
        offsets = parts[0][1]
        times = -(-_PAIRS * most // max(1, pairs_within(offsets)))
        draws = [random_rows(generator, embeddings.num_rows, offsets) for _ in range(times)]
        sizes = np.tile(np.diff(offsets), times)
        parts.append((np.concatenate(draws), np.append(0, sizes.cumsum())))
        used = np.unique(np.concatenate([rows for rows, _ in parts]))
        some = embeddings.take(used)
        pairs = unguarded_pairs(some, options.similarity, options.temperature, runtime)
        pairs = guarded_pairs(pairs, some, facts.take(used), options, runtime)
        found = [
            _batches(pairs, np.searchsorted(used, rows), offsets, penalty)
            for rows, offsets in parts
        ]
    guarded, improved = pairs.guard is not None, None if before is None else found[1]
    return Gain(options.limited, guarded, found[0], found[-1], improved)


def _some(
    rows: Int64Array, offsets: Int64Array, generator: np.random.Generator, most: int
) -> tuple[Int64Array, Int64Array]:
    """Return all batches, or random batches of up to ``most`` rows."""
    sizes = np.diff(offsets)
    count = max(1, int(most // sizes.max()))
    if count >= len(sizes):
        return rows, offsets
    batches = np.sort(generator.choice(len(sizes), count, replace=False))
    return take_batches(rows, offsets, batches)


def _batches(pairs: Pairs, rows: Int64Array, offsets: Int64Array, penalty: float) -> Batches:
    forth, back, breaks = batch_statistics(pairs, rows, offsets)
    losses = (forth.allowed - forth.positive + back.allowed - back.positive) / 2
    loss, by = float(losses.mean()), breaks.by
    similar, count = by["similarity"] + by["negative"], max(1, pairs_within(offsets))
    fined = penalty * similar / (2 * len(rows))
    error = float(losses.std()) / sqrt(len(rows))
    return Batches(loss - fined, loss, error, by["any"] / count, similar / count)
