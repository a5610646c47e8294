"""The benchmarks run, on small data; what they measure is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_quality_on_the_sample_data(tmp_path):
    command = [sys.executable, "-m", "tests.benchmarks", "--data", "sample_data", "quality"]
    command += ["startup", "--json", str(tmp_path / "found.json")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["quality"]["rows"] == 2048
    assert 0.09 < found["quality"]["gap reduction of gcbs"] < 0.12
    assert set(found["startup"]) == {"--help", "--version", "--help / import typer"}


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
    ours = batchplan.plan(embeddings, "gcbs", quantile=0.98, batch_size=20)
    theirs = batchplan.Plan.cut(order, Batching(20), num_rows=300)
    gaps = [batchplan.evaluate(plan, embeddings).gap_reduction for plan in (ours, theirs)]
    assert abs(gaps[0] - gaps[1]) < 0.1
    assert min(gaps) > 0.2
