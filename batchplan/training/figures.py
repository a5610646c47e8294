"""Measures how hard a plan is, cheaply enough for each epoch of a training."""

from collections.abc import Mapping
from typing import Any

from batchplan.data import Embeddings
from batchplan.data.answer_options import ANSWER_OPTIONS
from batchplan.plans.plan import Plan
from batchplan.quality import EvaluationOptions
from batchplan.runtime import Runtime

MEASURED = "gain", "false_negatives", "beaten_positives"

_RANDOM = "false_negatives_random"
_ROWS = 1024  # that are measured: some hundredths of a second, and two digits


def measured(
    plan: Plan, embeddings: Embeddings, options: Any, runtime: Runtime
) -> dict[str, float]:
    """Return the figures of a plan, from 1,024 of its rows.

    Args:
        plan: of the N pairs.
        embeddings: N pairs.
        options: of the planner; the similarity, the temperature, the groups and the ids count.
        runtime: the device, and the seed of the sample.

    Returns:
        ``gain``, the loss in the batches less that in random batches, in nats, over pairs that
        are no likely false negatives. ``false_negatives``, the share of the in-batch pairs that
        are, and ``false_negatives_random``, that in random batches. ``beaten_positives``, the share
        of random negatives that are more similar than the own pair.

    Raises:
        InputError: vectors without similarities.
        ResourceError: not enough memory, or no such device.
    """
    # these load torch, which the sampler of a plan does not need
    from batchplan.quality.facts import RowFacts
    from batchplan.quality.gain import measured_gain
    from batchplan.quality.guard.limits import with_limit
    from batchplan.quality.pairs import beaten_positives

    known = "temperature", "similarity", *ANSWER_OPTIONS
    usual: dict[str, Any] = {n: getattr(options, n) for n in known if hasattr(options, n)}
    settings, _ = with_limit([plan], EvaluationOptions(**usual))
    facts = RowFacts.named(embeddings, options, settings, runtime)
    gain = measured_gain(plan, embeddings, facts, settings, 0.0, runtime, most=_ROWS)
    return {
        "gain": gain.plan.objective - gain.random.objective,
        "false_negatives": gain.plan.false_negatives,
        "beaten_positives": beaten_positives(embeddings, settings, runtime),
        _RANDOM: gain.random.false_negatives,
    }


def doubt(figures: Mapping[str, float], batch_size: int, epoch: int) -> str:
    """Say why a plan may not be worth it, by its `measured` figures: as `evaluate` judges, and by
    what plans gained in similar trainings; "" if nothing speaks against it.

    Args:
        figures: of the plan.
        batch_size: rows of a batch.
        epoch: that is planned; before the first one, many beaten positives mean nothing.
    """
    from batchplan.expectation import WORTH, expectation
    from batchplan.quality.metrics import percent
    from batchplan.quality.verdict import is_harder, is_risky, risk_in_words

    if not figures.keys() >= {*MEASURED, _RANDOM}:
        return ""
    share, random = figures["false_negatives"], figures[_RANDOM]
    if is_risky(share, random):
        return (
            f"{percent(share)} {risk_in_words(random)}, which training pushes away; plan with a "
            "guard, or pass a group_column of rows that mean the same (docs/guards.md)"
        )
    if not is_harder(gain := figures["gain"]):
        return (
            f"its batches are no harder than random ones among true negatives ({gain:+.3f} nats); "
            "random batches would do as well"
        )
    expected = expectation(beaten := figures["beaten_positives"], batch_size)
    if epoch > 0 and expected.median < WORTH:
        return (
            f"it has {percent(beaten)} beaten positives, and plans of such data gained {expected}; "
            "see docs/law.md"
        )
    return ""
