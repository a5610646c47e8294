"""Editors know every option: batchplan/keywords.py is up to date, each planner has an overload, and
`help` shows the fields of the options. tests/typed.py is what type checkers make of it."""

import dataclasses
import inspect
import typing

import pytest

import batchplan
from batchplan.embedding.options import EmbedOptions
from batchplan.materialize import materialize
from batchplan.materialize.options import MaterializeOptions
from batchplan.planners import PLANNERS
from batchplan.planners.common.options import PlannerOptions
from batchplan.quality import EvaluationOptions
from batchplan.refinement.options import RefineOptions

from .keywords import MODULE, module, name_of

FUNCTIONS = [
    (batchplan.evaluate, EvaluationOptions),
    (batchplan.compare, EvaluationOptions),
    (batchplan.refine, RefineOptions),
    (batchplan.embed, EmbedOptions),
    (materialize, MaterializeOptions),
]


def test_the_keywords_are_up_to_date():
    assert MODULE.read_text() == module(), "run make docs"


def keywords_of(planner):
    """The name of the class of keywords that type checkers use for a planner."""
    for one in typing.get_overloads(batchplan.plan):
        if f'"{planner}"' in str(one.__annotations__["planner"]).replace("'", '"'):
            return str(one.__annotations__["options"]).split(".")[-1].rstrip("]")
    return None


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_has_an_overload(planner):
    assert keywords_of(planner) == name_of(PLANNERS[planner].options)


def test_any_other_name_takes_what_planners_share():
    last = typing.get_overloads(batchplan.plan)[-1].__annotations__
    assert last["planner"] == "str"
    assert name_of(PlannerOptions) in str(last["options"])


@pytest.mark.parametrize(("function", "kind"), FUNCTIONS)
def test_help_shows_every_option(function, kind):
    shown, text = inspect.signature(function).parameters, inspect.getdoc(function)
    for one in dataclasses.fields(kind):
        assert shown[one.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert one.name in text
        if one.default is not dataclasses.MISSING:
            assert shown[one.name].default == one.default


def test_help_of_plan_shows_the_options_of_its_usual_planner():
    kind = PLANNERS["partition"].options
    shown, text = inspect.signature(batchplan.plan).parameters, inspect.getdoc(batchplan.plan)
    for one in dataclasses.fields(kind):
        assert f"{one.name}: {one.metadata['help']}" in text
        assert shown[one.name].default == one.default
