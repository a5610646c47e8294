"""The training benchmark makes pairs and runs; what it measures is not judged here."""

import json
import sys

import pyarrow as pa
import pytest

from tests.benchmarks.training import __main__ as command
from tests.benchmarks.training import pairs, plans, setups
from tests.benchmarks.training.models import reciprocal_rank
from tests.benchmarks.training.tokens import tokens

SOURCE = '''
def long_enough(values):
    """Add the squares of all values."""
    total = sum(value**2 for value in values)
    return total if total else None, "something that makes it long"

def short():
    """One two three four."""
    return 1

def undocumented(values):
    return [value for value in values if value is not None and value > 0 and value < 100]
'''
WORDS = [
    "sort",
    "merge",
    "split",
    "parse",
    "read",
    "write",
    "open",
    "close",
    "draw",
    "count",
    "find",
    "copy",
]


def test_pairs_of_a_file(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    [(docstring, code)] = pairs.functions(path)
    assert docstring == "Add the squares of all values."
    assert code.startswith("total = sum(")
    assert "Add the" not in code
    path.write_text("def broken(:")
    assert list(pairs.functions(path)) == []


def test_pairs_are_made_once_and_in_one_order(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text(SOURCE)
    (tmp_path / "two.py").write_text(SOURCE)  # the same pair, which is kept once
    files = [(tmp_path / f"{name}.py", "package", f"package/{name}.py") for name in ("one", "two")]
    monkeypatch.setattr(pairs, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(pairs, "_files", lambda: files)
    made = pairs.pairs()
    assert made.column_names == ["docstring", "code", "group", "source"]
    assert made.num_rows == 1
    monkeypatch.setattr(pairs, "functions", None)  # not read again
    assert pairs.pairs().equals(made)


def test_tokens_are_words_and_parts_of_identifiers():
    first, second = tokens(["readLines read_lines", "read lines"], 10)
    assert set(first.tolist()) == set(second.tolist())
    assert first[first > 0].unique().numel() == 4  # read, lines, line~, ines~


def test_rank_counts_ties():
    import torch

    y = torch.eye(4)
    assert reciprocal_rank(y, y) == 1
    assert reciprocal_rank(torch.ones(4, 4), y) == 0.25


def test_epochs_of_a_setting():
    assert plans.arguments("shuffled", 3, 5) == ["shuffled", "--epoch", "3"]
    assert plans.arguments("after 2 gcbs --neighbors 4", 1, 5) == ["shuffled", "--epoch", "1"]
    assert plans.arguments("after 2 gcbs --neighbors 4", 2, 5) == ["gcbs", "--neighbors", "4"]


def test_settings_may_follow_the_epochs_and_the_last_plan(tmp_path):
    schedule = "partition --random-fraction {0.5:0}"
    shares = [plans.arguments(schedule, epoch, 5)[-1] for epoch in range(5)]
    assert shares == ["0.5", "0.375", "0.25", "0.125", "0"]
    warm = "partition --from {last} --refine 2"
    assert plans.arguments(warm, 0, 5) == ["partition", "--refine", "2"]
    assert plans.arguments(warm, 1, 5, tmp_path)[:3] == ["partition", "--from", str(tmp_path)]


@pytest.mark.parametrize("name", ["pretrained", "frozen", "scratch"])
def test_a_small_run(name, tmp_path, monkeypatch, capsys):
    texts = [f"{a} the {b} by {c}" for a in WORDS for b in WORDS for c in WORDS[:2]]
    table = pa.table({"docstring": texts, "code": texts, "group": texts})
    table = table.append_column("source", table["group"])
    monkeypatch.setattr(setups, "pairs", lambda: table)
    monkeypatch.setattr(setups, "HELD_OUT", 64)
    monkeypatch.setattr(setups, "_FROZEN_DIM", 16)
    found = tmp_path / "found.json"
    words = f"--seeds 1 --rows 130 --epochs 1 --setups {name} --json {found} --plans".split()
    monkeypatch.setattr(sys, "argv", ["training", *words, "gcbs --neighbors 4"])
    command.main()
    [run] = json.loads(found.read_text())[name]["gcbs --neighbors 4"]
    assert 0 < run["mrr"] <= 1
    assert run["seconds"]["plan"] > 0
    assert "| `gcbs --neighbors 4` |" in capsys.readouterr().out
