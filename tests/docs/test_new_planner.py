"""The planner that docs/extending.md shows works as the page says, without other changes."""

from __future__ import annotations

import importlib
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import batchplan
import batchplan.cli.app
from batchplan.planners import PLANNERS, Planner

from .blocks import ROOT, add_module, blocks_under

PAGE = ROOT / "docs" / "extending.md"
NAME = "batchplan.planners.anchor"
INPUT = str(ROOT / "sample_data" / "pairs.parquet")


@pytest.fixture
def app(tmp_path, monkeypatch):
    """The application with the page's planner in the registry."""
    source, entry = (block.text for block in blocks_under(PAGE, "Planner"))
    add_module(NAME, source, tmp_path, monkeypatch)
    registered = eval(f"{{{entry}}}", {"Planner": Planner, **vars(importlib.import_module(NAME))})
    monkeypatch.setitem(PLANNERS, "anchor", registered["anchor"])
    yield importlib.reload(batchplan.cli.app).app
    monkeypatch.undo()
    importlib.reload(batchplan.cli.app)


def test_command_has_its_options(app):
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["anchor", "--help"]).stdout
    for option in ("--nearest-first", "--no-nearest-first", "--batch-size", "--tail", "--device"):
        assert option in shown
    assert re.search(r"anchor +Rows by their similarity", CliRunner().invoke(app).output)


def test_contract(app, tmp_path):
    embeddings = batchplan.load_embeddings(INPUT)
    plan = batchplan.plan(embeddings, planner="anchor", batch_size=100, seed=3)
    again = batchplan.plan(embeddings, planner="anchor", batch_size=100, seed=3)
    other = batchplan.plan(embeddings, planner="anchor", batch_size=100, seed=4)
    assert (plan.rows == again.rows).all()
    assert plan.metadata == again.metadata
    assert (plan.rows != other.rows).any()
    assert sorted(plan.rows.tolist()) == list(range(embeddings.num_rows))
    assert plan.metadata.options["nearest_first"] is True
    with pytest.raises(batchplan.InputError, match="batch size"):
        batchplan.plan(embeddings, planner="anchor", batch_size=1)
    with pytest.raises(batchplan.InputError, match="no option 'farthest'"):
        batchplan.plan(embeddings, planner="anchor", farthest=True)
    zero = np.zeros((4, 2), np.float32)
    with pytest.raises(batchplan.InputError, match="zeros"):
        batchplan.plan(batchplan.Embeddings.from_arrays(zero), planner="anchor", batch_size=2)


def test_command_writes_the_plan_of_the_library(app, tmp_path):
    output = tmp_path / "plan.npy"
    arguments = ["anchor", INPUT, "--no-nearest-first", "--seed", "3", "-o", str(output), "-q"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    embeddings = batchplan.load_embeddings(INPUT)
    plan = batchplan.plan(embeddings, planner="anchor", seed=3, nearest_first=False)
    assert (np.load(output) == plan.rows).all()
    stored = json.loads((tmp_path / "plan.npy.json").read_text())
    assert stored["planner"] == "anchor"
    assert stored["options"]["nearest_first"] is False
    assert stored["metrics"] == plan.metadata.metrics
