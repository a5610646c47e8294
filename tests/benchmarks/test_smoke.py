"""The benchmarks run, on small data; what they measure is not judged here."""

import json
import runpy
from pathlib import Path

from tests.benchmarks import startup

ROOT = Path(__file__).parents[2]


def test_quality_on_the_sample_data(tmp_path, monkeypatch):
    written = tmp_path / "found.json"
    line = ["benchmarks", "--data", "sample_data", "quality", "startup", "--json", str(written)]
    monkeypatch.setattr("sys.argv", line)
    monkeypatch.setattr(startup, "RUNS", 1)
    monkeypatch.chdir(ROOT)
    runpy.run_module("tests.benchmarks", run_name="__main__")
    found = json.loads(written.read_text())
    assert found["quality"]["rows"] == 2048
    assert 0.09 < found["quality"]["gap reduction of gcbs"] < 0.12
    assert set(found["startup"]) == {"--help", "--version", "--help / import typer"}


def test_steps_of_planning_beside_the_product(monkeypatch):
    from tests.benchmarks.speed import measure as speed

    monkeypatch.setattr(speed, "ROUNDS", 1)
    figures = speed.measure_steps(ROOT / "sample_data", 600, speed.TABLE)
    assert len(figures) == len(speed.TABLE)
    assert all(" s" in figure and "(goal " in figure for figure in figures.values())
    assert all(float(figure.split()[0]) > 0 for figure in figures.values())


def test_the_cost_of_recording(monkeypatch):
    from tests.benchmarks import recorder

    for name, value in {"ROWS": 256, "WIDTH": 8, "ROUNDS": 1, "STEPS": 1}.items():
        monkeypatch.setattr(recorder, name, value)
    assert len(recorder.measure(ROOT)) == 3


def test_peers_agree_with_the_neighbours(monkeypatch):
    import numpy as np
    import torch

    from tests.benchmarks import peers

    torch.manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(300, 8)) for _ in range(2))
    truth = peers.exact(x, y)
    for search in peers.PEERS.values():
        assert np.mean(search(x, y) == truth) > 0.99


def test_the_plain_procedure_agrees_with_the_planner_on_what_is_near():
    import torch

    import batchplan
    from batchplan.plans import Batching
    from tests.benchmarks.appendix_j import plain_gcbs

    torch.manual_seed(0)
    rows = torch.randn(300, 8)
    order = plain_gcbs(rows, rows, 0.98)
    assert sorted(order) == list(range(300))
    embeddings = batchplan.load_embeddings(rows.numpy())
    ours = batchplan.plan(embeddings, planner="gcbs", quantile=0.98, batch_size=20)
    theirs = batchplan.Plan.cut(order, Batching(20), num_rows=300)
    gaps = [batchplan.evaluate(plan, embeddings).gap_reduction for plan in (ours, theirs)]
    assert abs(gaps[0] - gaps[1]) < 0.1
    assert min(gaps) > 0.2


def test_scale_of_a_few_rows(tmp_path, capsys):
    from tests.benchmarks import scale

    given = ["--data", str(ROOT / "sample_data"), "--folder", str(tmp_path), "--dims", "16"]
    scale.main(["--rows", "300", "600", *given, "--mega-batch-rows", "200", "-b", "8"])
    told = capsys.readouterr().out
    assert told.count("  seconds, neighbors") == 2
    assert "growth: seconds ~ N ^" in told
    assert (tmp_path / "600x16" / "complete").exists()
