"""The metric that docs/extending.md shows works as the page says, without other changes."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import batchplan
from batchplan.cli.app import app
from batchplan.quality.metrics import METRICS, Metric
from batchplan.report import write_report
from tests.dense import unit_sides

from .blocks import ROOT, add_module, blocks_under

PAGE = ROOT / "docs" / "extending.md"
NAME = "batchplan.quality.beaten"
INPUT = str(ROOT / "sample_data" / "pairs.parquet")
FEW = ["--random-trials", "2"]


@pytest.fixture(autouse=True)
def added(tmp_path, monkeypatch):
    """The page's formula as a file, and its row in the table."""
    source, row = (block.text for block in blocks_under(PAGE, "Metric"))
    add_module(NAME, source, tmp_path, monkeypatch)
    metric = eval(row, {"Metric": Metric, **vars(importlib.import_module(NAME))})
    monkeypatch.setitem(METRICS, metric.name, metric)


@pytest.fixture
def plan(tmp_path):
    """The file of a plan, and the share of its rows that a negative beats, by its definition."""
    embeddings = batchplan.load_embeddings(INPUT)
    made = batchplan.plan(embeddings, planner="random")
    made.save(tmp_path / "plan.npy")
    x, y = unit_sides(embeddings)
    beaten = []
    for batch in made.batches():
        similar = x[batch] @ y[batch].T
        for side in (similar, similar.T):
            beaten += (side > side.diagonal()[:, None]).any(axis=1).tolist()
    return str(tmp_path / "plan.npy"), float(np.mean(beaten))


def run(*arguments):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, arguments)


def test_evaluate_shows_it(plan):
    path, beaten = plan
    document = json.loads(run("evaluate", path, INPUT, "--json", *FEW).stdout)
    assert 0 < beaten < 1
    assert document["beaten_positives"] == pytest.approx(beaten, abs=1e-4)
    shown = run("evaluate", path, INPUT, "--all", *FEW).stdout
    assert (
        f"beaten positives                {document['beaten_positives']:.1%} of the entries"
        in shown
    )


def test_check_judges_it(plan, tmp_path):
    path, _ = plan
    assert run("check", path, INPUT, "--fail-under", "beaten_positives=0", *FEW).exit_code == 0
    base = str(tmp_path / "base.json")
    assert run("check", path, INPUT, "--write-baseline", base, *FEW).exit_code == 0
    same = ["--baseline", base, "--fail-regress", "beaten_positives=0"]
    failed = run("check", path, INPUT, *same, "--fail-under", "beaten_positives=1", *FEW)
    assert failed.exit_code == 1
    assert failed.stdout.count("beaten_positives") == 2
    assert "1 of 2 gates failed" in failed.stdout


def test_report_shows_it(plan, tmp_path):
    path, _ = plan
    embeddings = batchplan.load_embeddings(INPUT)
    plans = {"plan.npy": batchplan.Plan.load(path)}
    made = write_report(plans, embeddings, tmp_path / "report.html", random_trials=2)
    (one,) = made.plans
    text = (tmp_path / "report.html").read_text()
    assert f"<td>{one.evaluation.computed['beaten_positives']:.1%} of the entries</td>" in text
    assert METRICS["beaten_positives"].meaning in text
