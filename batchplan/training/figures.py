"""Measures how hard a plan is, cheaply enough for each epoch of a training."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchplan.data import Embeddings
from batchplan.plans.plan import Plan
from batchplan.quality import EvaluationOptions
from batchplan.runtime import Runtime

MEASURED = "gain", "false_negatives", "beaten_positives"

_ROWS = 1024  # that are measured: some hundredths of a second, and two digits
_STREAM = int.from_bytes(b"figures")


def measured(
    plan: Plan, embeddings: Embeddings, options: Any, runtime: Runtime
) -> dict[str, float]:
    """Return the figures of a plan, from 1,024 of its rows.

    Args:
        plan: of the N pairs.
        embeddings: N pairs.
        options: of the planner; those of the similarity and the temperature count.
        runtime: the device, and the seed of the sample.

    Returns:
        ``gain``, the loss in the batches less that in random batches, in nats, over pairs that
        are no likely false negatives. ``false_negatives``, the share of the in-batch pairs that
        are. ``beaten_positives``, the share of random negatives that are more similar than the own
        pair.

    Raises:
        InputError: vectors without similarities.
        ResourceError: not enough memory, or no such device.
    """
    # these load torch, which the sampler of a plan does not need
    from batchplan.quality.facts import RowFacts
    from batchplan.quality.gain import measured_gain
    from batchplan.quality.guard.limits import with_limit
    from batchplan.quality.pairs import unguarded_pairs

    known = ("similarity", "temperature")
    usual: dict[str, Any] = {n: getattr(options, n) for n in known if hasattr(options, n)}
    settings, _ = with_limit([plan], EvaluationOptions(**usual))
    gain = measured_gain(plan, embeddings, RowFacts(), settings, 0.0, runtime, most=_ROWS)
    count = min(_ROWS, embeddings.num_rows)
    rows = runtime.generator(_STREAM).choice(embeddings.num_rows, count, replace=False)
    pairs = unguarded_pairs(
        embeddings.take(rows), settings.similarity, settings.temperature, runtime
    )
    x, y = (side.gather(np.arange(count)) for side in (pairs.x, pairs.y))
    scores = x @ y.T
    beaten = int((scores > scores.diagonal()[:, None]).sum())
    return {
        "gain": gain.plan.objective - gain.random.objective,
        "false_negatives": gain.plan.broken_share,
        "beaten_positives": beaten / (count * (count - 1)),
    }
