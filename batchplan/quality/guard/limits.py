"""The limit on the similarity of negatives that judges plans, and the ceilings that follow from it.

If the options set no limit, a plan is judged by the limit that it was made with, and a plan without
any by the usual margin. Plans are only compared by the same limit, so several plans are judged by
the limit that some of them have, or, if these differ, by the usual margin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from batchplan.options import LIMITS, USUAL_MARGIN, USUAL_ROWS
from batchplan.plans import Plan
from batchplan.quality.options import EvaluationOptions
from batchplan.typing import Float64Array

LimitSource = Literal["options", "plans", "default", "rejected"]

_ROUNDING = 1e-6  # rows as similar as most to their own pair keep their own ceiling


def with_limit(
    plans: Sequence[Plan], options: EvaluationOptions
) -> tuple[EvaluationOptions, LimitSource]:
    """Return the options with the limit that judges all of these plans, and its source.

    Options that set a limit or turn the guard off are returned unchanged.
    """
    if options.limited or not options.guard:
        return options, "options"
    limits = [own for plan in plans if (own := own_limit(plan, options))]
    if limits and all(limit == limits[0] for limit in limits):
        return replace(options, **limits[0]), "plans"
    return replace(options, relative_margin=USUAL_MARGIN), "default"


def limit_in_words(limit: Mapping[str, float | None]) -> str:
    """Return the limit in words, from its values by name; "" without one."""
    return ", ".join(
        f"{name.replace('_', ' ')} {limit[name]:g}"
        for name in LIMITS
        if limit.get(name) is not None
    )


def own_limit(plan: Plan, options: EvaluationOptions) -> dict[str, Any]:
    """Return the limit that the plan was made with, by its name.

    It is empty without a limit, or if the plan was made for another similarity.
    """
    made_with = plan.metadata.options
    if made_with.get("similarity", "cosine") != options.similarity:
        return {}
    return {
        name: made_with[name] for name in LIMITS if isinstance(made_with.get(name), int | float)
    }


def ceilings_of(own: Float64Array, options: EvaluationOptions) -> Float64Array:
    """Return what the similarities of each row's negatives must stay below, float64 (N,), from
    the similarities of the own pairs, (N,).

    A margin is taken from a row's own similarity, or from the median of all if that is higher.
    """
    if options.max_score is not None:
        return np.full_like(own, options.max_score)
    count = min(len(own), USUAL_ROWS)
    few = np.sort(own[np.arange(count) * len(own) // count])
    median = few[(count - 1) // 2]
    own = np.maximum(own, median - _ROUNDING * abs(median))
    if options.absolute_margin is not None:
        return own - options.absolute_margin
    margin = options.relative_margin or 0.0
    return np.where(own < 0, own * (1 + margin), own * (1 - margin))
