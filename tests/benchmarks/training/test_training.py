"""The training benchmark makes pairs and runs; what it measures is not judged here."""

import json
import sys
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
import torch

from batchplan import Plan
from batchplan.plans import Batching
from tests.benchmarks.training import __main__ as command
from tests.benchmarks.training import figures, pairs, plans, predictors, setups, wall_time
from tests.benchmarks.training.models import Heads, Training, reciprocal_rank
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
    y = torch.eye(4)
    assert reciprocal_rank(y, y) == 1
    assert reciprocal_rank(torch.ones(4, 4), y) == 0.25


SIZE = ["--batch-size", "64"]


def test_epochs_of_a_setting():
    assert plans.arguments("shuffled", 3, 5) == ["shuffled", *SIZE, "--epoch", "3"]
    assert plans.arguments("after 2 gcbs --neighbors 4", 1, 5) == [
        "shuffled", *SIZE, "--epoch", "1",
    ]  # fmt: skip
    assert plans.arguments("after 2 gcbs --neighbors 4", 2, 5) == [
        "gcbs", "--neighbors", "4", *SIZE,
    ]  # fmt: skip


def test_a_setting_may_have_its_own_batch_size():
    setting = "shuffled --batch-size 256"
    assert plans.batch_size(setting) == 256
    assert plans.batch_size("partition") == 64
    assert plans.arguments(setting, 0, 5) == [*setting.split(), "--epoch", "0"]


def test_settings_may_follow_the_epochs():
    def last(schedule, epoch, epochs):
        return plans.arguments(schedule, epoch, epochs)[2]

    schedule = "partition --mega-batches {8:1}"
    assert [last(schedule, epoch, 4) for epoch in range(4)] == ["8", "6", "3", "1"]


def test_figures_of_a_plan():
    draw = np.random.default_rng(0)
    x, y = (torch.from_numpy(draw.normal(size=(128, 8))).float() for _ in range(2))
    x, y = (torch.nn.functional.normalize(side, dim=1) for side in (x + y, y))
    plan = Plan.cut(draw.permutation(128), Batching(16), num_rows=128)
    met = figures.Met(128)
    found = figures.figures(plan, x, y, met)
    batch = plan.rows[:16]
    scores = (x[batch.copy()] @ y[batch.copy()].T).numpy()
    own = np.diag(scores)
    assert found["new"] == 1
    assert 0 < found["false negatives @0.0"] <= found["false negatives @0.2"] < 1
    assert found["1 - p @0.2"] <= found["1 - p @0.0"] <= found["1 - p"] < 1
    assert found["gap reduction"] != found["guarded gap reduction @0.1"]
    again = figures.figures(plan, x, y, met, whole=False)
    assert again["new"] == 0
    assert "gap reduction" not in again

    allowed = np.maximum(scores, scores.T) < np.minimum.outer(own, own) * 0.9
    weights = np.exp(scores / figures.TEMPERATURE)
    rows = np.diag(weights) / (np.diag(weights) + (weights * allowed).sum(1))
    columns = np.diag(weights) / (np.diag(weights) + (weights * allowed).sum(0))
    alone = Plan.from_batches(batch, [0, 16], Batching(16), num_rows=128)
    told = figures.figures(alone, x, y, figures.Met(128), whole=False)
    assert told["1 - p @0.1"] == pytest.approx(1 - (rows.mean() + columns.mean()) / 2, abs=1e-5)
    full = (weights / weights.sum(0) + weights / weights.sum(1)[:, None]) / 2
    assert told["true push @0.1"] == pytest.approx((full * allowed).sum() / 16, abs=1e-5)
    assert told["false negatives @0.1"] == pytest.approx(
        ((~allowed).sum() - 16) / 256, abs=1e-9
    )  # a row is none of its own


def test_the_best_predictor_comes_first():
    draw = np.random.default_rng(0)
    runs = []
    kinds = ("guarded gap reduction", "1 - p", "false negatives", "true push")
    names = ["new", "gap reduction", "1 - p"]
    names += [f"{kind} @{margin}" for margin in figures.MARGINS for kind in kinds]
    order = enumerate(["shuffled", "gcbs", "rwr", "scb", "knn"])  # by gain
    for setup, seed, (number, plan) in product(("pretrained", "scratch"), range(2), order):
        told = {name: float(draw.random()) for name in names} | {"1 - p @0.05": number / 10}
        run = {"setup": setup, "plan": plan, "seed": seed, "rate": 1, "figures": [told, told]}
        runs.append({**run, "mrr": 0.5 + number / 100})
    lines = predictors.table(runs).splitlines()
    assert lines[0] == "5 plans; seeds: pretrained 2, scratch 2"
    assert lines[4].startswith("| 1 - p @0.05")
    assert "| 1.00 | 1.00 | 1.00 | 1.00 to 1.00 |" in lines[4]

    # the first plan is the same at every learning rate, so its figures are, too
    faster = [run | {"rate": 2, "figures": [], "mrr": 1 - run["mrr"]} for run in runs]
    again = predictors.table(runs + faster, 2).splitlines()
    assert any(line.startswith("| 1 - p @0.05 | -1.00") for line in again[-2:])


def test_a_step_keeps_more_for_larger_batches():
    x = torch.randn(256, 8)
    training = Training(Heads(8), x, x, steps=1, rate=0.1)
    small, large = (training.kept(list(range(size))) for size in (64, 256))
    assert small > 2 * 64 * 64 * 4  # at least the probabilities of both directions
    assert 4 * small < large < 16 * small


@pytest.mark.parametrize("name", ["pretrained", "frozen", "scratch"])
def test_a_small_run(name, tmp_path, monkeypatch, capsys):
    texts = [f"{a} the {b} by {c}" for a in WORDS for b in WORDS for c in WORDS[:2]]
    table = pa.table({"docstring": texts, "code": texts, "group": texts})
    table = table.append_column("source", table["group"])
    monkeypatch.setattr(setups, "pairs", lambda: table)
    monkeypatch.setitem(setups.SMALL, name, setups.Size(130, 1, 0.001, 16, 64, 64))
    kept = tmp_path / "kept.json"
    words = f"--small --seeds 0 --setups {name} --figures --json {kept} --plans".split()
    monkeypatch.setattr(sys, "argv", ["training", *words, "gcbs --neighbors 4"])
    command.main()
    shuffled, run = json.loads(kept.read_text())
    assert (shuffled["plan"], run["plan"]) == ("shuffled", "gcbs --neighbors 4")
    assert 0 < run["mrr"] <= 1
    assert run["seconds"]["plan"][0] > 0
    assert run["figures"][0]["new"] == 1
    shown = capsys.readouterr().out
    assert "| `gcbs --neighbors 4` |" in shown
    monkeypatch.setattr(command, "trained", None)  # what is there is not run again
    command.main()
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("name", "passes"),
    [("shuffled", 0), ("partition", 6), ("partition for 4 epochs, then shuffled", 4),
     ("the same, free embeddings", 1)],
)  # fmt: skip
def test_curves_over_wall_time(name, passes, monkeypatch):
    """All that a way costs is on the clock: so many passes of embedding, each of some seconds."""
    x = torch.nn.functional.normalize(torch.randn(300, 8), dim=1)
    part = setups.Part(x, x + 0.1 * torch.randn(300, 8), None)
    embedded, moment = [], [0.0]
    real = wall_time.embed

    def embed(model, x, y):
        if len(x) == 300:
            embedded.append(len(x))
            moment[0] += 10
        return real(model, x, y)

    held_out = setups.Part(x[:50], x[:50], None)
    monkeypatch.setattr(wall_time, "embed", embed)
    monkeypatch.setattr(wall_time.time, "perf_counter", lambda: moment[0])
    setup = setups.Setup(part, held_out, lambda: Heads(8))
    size = setups.Size(300, 3, 0.01, dim=8)
    curve = wall_time.trained(setup, size, wall_time.WAYS[name], 6, seed=0)
    assert len(embedded) == passes
    assert [seconds for seconds, _ in curve][-1] == 10 * passes
    assert all(0 < score <= 1 for _, score in curve)
    [axes] = wall_time.drawn([{"way": name, "curve": curve}]).axes
    assert axes.lines[0].get_xdata().tolist() == [seconds for seconds, _ in curve]
