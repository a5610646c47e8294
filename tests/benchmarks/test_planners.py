"""The comparison of planners: it leaves none out, and its rows hold what they say."""

import pyarrow.parquet as pq
import pytest
from typer.main import get_command

from batchplan.cli.app import app
from batchplan.planners import PLANNERS
from tests.benchmarks import planners
from tests.benchmarks.quality import load


def test_every_planner_is_compared_with_options_that_it_has():
    lines = list(planners.settings(2048))
    assert {line[0] for line in lines} >= set(PLANNERS)
    assert len({tuple(line) for line in lines}) == len(lines)
    for name, *options in lines:
        known = {flag for one in commands()[name].params for flag in one.opts}
        assert {option for option in options if option.startswith("--")} <= known


def commands():
    return get_command(app).commands


@pytest.fixture
def few(tmp_path, programs, monkeypatch):
    """A folder with the first 256 of the sample pairs."""
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    table = pq.read_table("sample_data/pairs.parquet").slice(0, 256)
    pq.write_table(table, tmp_path / "pairs.parquet")
    return tmp_path


def test_rows_of_the_comparison(few, monkeypatch):
    monkeypatch.setattr(planners, "settings", lambda num_rows: [["random"], ["gcbs"]])
    found = planners.measure(few)
    assert list(found) == ["random", "gcbs"]
    assert found["gcbs"]["loss"] > found["random"]["loss"]
    assert {"false by group", "false by source", "rows seen", "peak MB"} <= set(found["gcbs"])
    lines = planners.markdown(found).splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1


def test_what_cannot_be_measured_says_why(few, monkeypatch):
    inputs, labels = planners.sources(few, load(few))
    refused = planners.compared(["gcbs", "--neighbors", "256"], inputs, labels, few)
    assert refused["loss"].startswith("error: neighbors")
    monkeypatch.setattr(planners, "LIMIT", 0.01)
    assert planners.compared(["random"], inputs, labels, few) == {"loss": "stopped after 0.01 s"}
