"""Editors know every option: batchplan/keywords.py is up to date, and `help` shows the fields of
the options. tests/typed.py is what type checkers make of it."""

import dataclasses
import inspect
import typing

import pytest

import batchplan
from batchplan.embedding.options import EmbedOptions
from batchplan.keywords import EpochKeywords, PlannerKeywords
from batchplan.materialize import materialize
from batchplan.materialize.options import MaterializeOptions
from batchplan.planners import PLANNERS
from batchplan.quality import EvaluationOptions
from batchplan.refinement.options import RefineOptions
from batchplan.training import EpochPlans

from .keywords import MODULE, module, spelled

FUNCTIONS = [
    (batchplan.evaluate, EvaluationOptions),
    (batchplan.compare, EvaluationOptions),
    (batchplan.refine, RefineOptions),
    (batchplan.embed, EmbedOptions),
    (materialize, MaterializeOptions),
]


def test_the_keywords_are_up_to_date():
    assert MODULE.read_text() == module(), "run make docs"


@pytest.mark.parametrize("planner", PLANNERS)
def test_plan_knows_the_options_of_every_planner(planner):
    known = typing.get_type_hints(PlannerKeywords)
    for name, hint in typing.get_type_hints(PLANNERS[planner].options).items():
        assert set(spelled(hint).split(" | ")) <= set(spelled(known[name]).split(" | "))
    for function in (batchplan.plan, batchplan.mine_negatives):
        assert function.__annotations__["options"] == "Unpack[PlannerKeywords]"


def test_plans_of_epochs_know_no_options_that_they_refuse(tmp_path):
    options = typing.get_type_hints(EpochKeywords)
    assert not options.keys() & {"epoch", "progress"}
    for planner, name in (("shuffled", "epoch"), ("rwr", "progress")):
        with pytest.raises(batchplan.InputError, match=f"^{name}: got 0"):
            EpochPlans(tmp_path, planner, embed=print, num_rows=9, batch_size=3, **{name: 0})


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
