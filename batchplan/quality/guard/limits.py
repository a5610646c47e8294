"""Chooses the limit on the similarity of negatives that judges plans, if the options set none.

A plan is judged by the limit that it was made with, and a plan without any by the usual margin.
Plans are only compared by the same limit, so several plans are judged by that of those that have
one, or, where these differ, by the usual margin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from batchplan.options import LIMITS, USUAL_MARGIN
from batchplan.plans import Plan
from batchplan.quality.options import EvaluationOptions

LimitSource = Literal["options", "plans", "default", "rejected"]


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
