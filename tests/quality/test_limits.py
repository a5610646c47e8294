"""The limit that judges a plan: that of the options, of the plan, or the usual one."""

from dataclasses import replace

import numpy as np
import pytest

from batchplan import InputError
from batchplan.options import USUAL_MARGIN
from batchplan.planners import PLANNERS
from batchplan.plans import Batching, Plan
from batchplan.quality import EvaluationOptions, evaluate
from batchplan.quality.guard.limits import limit_in_words, own_limit, with_limit

NONE = EvaluationOptions()


def made_with(**options):
    return Plan.cut(np.arange(8), Batching(4), num_rows=8, planner="partition", options=options)


FREE = made_with(relative_margin=None, guard=False)
STRICT, SAME, MILD = (made_with(relative_margin=m) for m in (0.2, 0.2, 0.05))
CAPPED = made_with(max_score=0.7, similarity="cosine")


@pytest.mark.parametrize(
    ("plans", "limit", "source"),
    [
        ([STRICT], {"relative_margin": 0.2}, "plans"),
        ([CAPPED], {"max_score": 0.7}, "plans"),
        ([STRICT, SAME, FREE], {"relative_margin": 0.2}, "plans"),
        ([STRICT, MILD], {"relative_margin": USUAL_MARGIN}, "default"),
        ([STRICT, CAPPED], {"relative_margin": USUAL_MARGIN}, "default"),
        ([FREE, made_with()], {"relative_margin": USUAL_MARGIN}, "default"),
    ],
)
def test_one_limit_judges_all(plans, limit, source):
    assert with_limit(plans, NONE) == (EvaluationOptions(**limit), source)


def test_options_come_first():
    for options in (EvaluationOptions(absolute_margin=0.1), EvaluationOptions(guard=False)):
        assert with_limit([STRICT, CAPPED], options) == (options, "options")


@pytest.mark.parametrize(
    "options",
    [
        {"max_score": 0.7, "similarity": "dot"},  # a score of other similarities
        {"relative_margin": "much"},
    ],
)
def test_what_is_no_limit_of_these_similarities_is_ignored(options):
    assert own_limit(made_with(**options), NONE) == {}


def test_the_usual_margin_is_that_of_the_planner():
    assert PLANNERS["partition"].options().relative_margin == USUAL_MARGIN


def test_words():
    assert limit_in_words({"relative_margin": 0.1}) == "relative margin 0.1"
    assert limit_in_words({"max_score": 0.0, "relative_margin": None}) == "max score 0"
    assert limit_in_words({}) == ""


def test_a_plan_is_measured_with_its_own_guard(helpers):
    """Where options are silent; the figures are those of the options that say the same."""
    embeddings = helpers.clustered(45, copies=4)
    plain = helpers.make_plan(embeddings, 8)
    own = replace(plain, metadata=replace(plain.metadata, options={"relative_margin": 0.3}))
    for plan, margin, source in ((own, 0.3, "plans"), (plain, USUAL_MARGIN, "default")):
        found = evaluate(plan, embeddings, random_trials=3).guard
        told = evaluate(plan, embeddings, random_trials=3, relative_margin=margin).guard
        assert (found.relative_margin, found.limit_from) == (margin, source)
        assert replace(found, limit_from="options") == told
    overridden = evaluate(own, embeddings, random_trials=3, absolute_margin=0.1).guard
    assert (overridden.relative_margin, overridden.absolute_margin) == (None, 0.1)
    assert evaluate(own, embeddings, random_trials=3, guard=False).guard is None


def test_no_guard_and_a_limit_exclude_each_other():
    with pytest.raises(InputError, match=r"max score 0\.5: given with --no-guard"):
        EvaluationOptions(max_score=0.5, guard=False)
