"""The fine-tune of a small BERT runs; what it measures is not judged here."""

import json
import sys

import pyarrow as pa

from tests.benchmarks.training import transformer

WORDS = ["sort", "merge", "split", "parse", "read", "write", "open", "close", "draw", "count"]


def test_a_small_run(tmp_path, monkeypatch, capsys):
    texts = [f"{a} the {b} by {c}" for a in WORDS for b in WORDS for c in WORDS[:3]]
    table = pa.table({"docstring": texts, "code": [f"return {text}" for text in texts]})
    monkeypatch.setattr(transformer, "pairs", lambda: table)
    found = tmp_path / "found.json"
    small = "--layers 1 --width 32 --rows 130 --other-rows 70 --judged 40 --held-out 40"
    words = f"--seeds 2 --rates 1e-3 1e-4 --epochs 1 {small}".split()
    monkeypatch.setattr(sys, "argv", ["transformer", *words, "--json", str(found)])
    transformer.main()
    runs = json.loads(found.read_text())["runs"]
    tried = [(planner, rate, 0) for planner in ("shuffled", "partition") for rate in (1e-3, 1e-4)]
    assert [(run["planner"], run["rate"], run["seed"]) for run in runs[:4]] == tried
    assert [(run["planner"], run["seed"]) for run in runs[4:]] == [
        ("shuffled", 1),
        ("partition", 1),
    ]
    assert all(0 < run["held out"] <= 1 for run in runs)
    assert "| `partition` |" in capsys.readouterr().out
