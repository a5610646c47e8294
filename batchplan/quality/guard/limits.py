"""Which limit on the similarity of negatives judges plans, where the options set none.

A plan is judged by the limit that it was made with, and a plan without any by the usual margin.
Plans are only compared by the same limit, so several plans are judged by that of those that have
one, or, where these differ, by the usual margin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from batchplan.errors import InputError
from batchplan.options import LIMITS, USUAL_MARGIN
from batchplan.plans import Plan
from batchplan.quality.options import EvaluationOptions

LimitSource = Literal["options", "plans", "default"]


def with_limit(
    plans: Sequence[Plan], options: EvaluationOptions
) -> tuple[EvaluationOptions, LimitSource]:
    """The options with the limit that judges all of these plans, and where it comes from.

    ``options`` that set a limit, or want none, are returned as they are.
    """
    if options.limited or not options.guard:
        return options, "options"
    limits = [own for plan in plans if (own := own_limit(plan, options))]
    if limits and all(limit == limits[0] for limit in limits):
        return replace(options, **limits[0]), "plans"
    return replace(options, relative_margin=USUAL_MARGIN), "default"


def limit_in_words(limit: Mapping[str, float | None]) -> str:
    """The limit, of values by name; empty without one."""
    return ", ".join(
        f"{name.replace('_', ' ')} {limit[name]:g}"
        for name in LIMITS
        if limit.get(name) is not None
    )


def own_limit(plan: Plan, options: EvaluationOptions) -> dict[str, Any]:
    """The limit that the plan was made with, by its name; empty without one, and where it is of
    another similarity than that of the options."""
    made_with = plan.metadata.options
    limit = {name: made_with[name] for name in LIMITS if made_with.get(name) is not None}
    try:
        replace(options, **limit)  # another tool may have written anything
    except InputError:
        return {}
    return limit if made_with.get("similarity", "cosine") == options.similarity else {}
