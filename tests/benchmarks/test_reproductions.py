"""The papers' claims are run, and their verdicts follow from what was measured."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import batchplan
from tests.benchmarks.reproductions import batches, batchsampler, gcbs, minibatch, scns
from tests.benchmarks.reproductions.claims import (
    HOLDS,
    IN_PART,
    NOT,
    NOT_RUN,
    QUICK,
    Found,
    markdown,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A folder with the first 512 of the sample pairs."""
    folder = tmp_path_factory.mktemp("few")
    table = pq.read_table(ROOT / "sample_data" / "pairs.parquet").slice(0, 512)
    pq.write_table(table, folder / "pairs.parquet")
    return folder


@pytest.mark.parametrize(
    ("met", "verdict"),
    [([True, True], HOLDS), ([True, False], IN_PART), ([False], NOT), ([], NOT_RUN)],
)
def test_verdicts_follow_from_conditions(met, verdict):
    assert Found("", met).verdict == verdict


@pytest.mark.parametrize("paper", [gcbs, batchsampler, minibatch, scns])
def test_every_claim_is_judged(paper, few):
    measured = paper.measure(few, QUICK)
    found = [claim.judge(measured) for claim in paper.CLAIMS]
    lines = markdown(paper.CLAIMS, found).splitlines()
    assert len(lines) == 2 + len(paper.CLAIMS)
    assert {line.count("|") for line in lines} == {5}  # no cell breaks the table
    verdicts = {claim.says: one.verdict for claim, one in zip(paper.CLAIMS, found, strict=True)}
    assert all(one.ours for one in found)
    if paper is minibatch:
        assert verdicts["so do all pairs of rows together"] == HOLDS
        assert verdicts["fixed and shuffled batches do not"] != NOT
    if paper is scns:
        assert found[0].verdict == found[3].verdict == HOLDS
        assert found[1].verdict == IN_PART


def test_plain_losses_are_those_of_evaluate(few):
    embeddings = batchplan.load_embeddings(few / "pairs.parquet")
    plan = batchplan.plan(embeddings, planner="gcbs")
    told = batchplan.evaluate(plan, embeddings)
    x, y = batches.unit_rows(embeddings)
    loss, probability = batches.in_batches(x, y, batches.stacked(plan))
    assert loss == pytest.approx(told.loss_train, abs=1e-5)
    assert probability == pytest.approx(told.positive_probability, abs=1e-5)
    assert batches.against_all(x, y, rows=100)[0] == pytest.approx(told.loss_global, abs=1e-5)


def test_the_toy_descends_the_gradient():
    vectors = minibatch.Vectors(6, 4)
    rows = np.array([[0, 3], [2, 3]])
    raw = [torch.tensor(3 * side, requires_grad=True) for side in vectors.raw]
    x, y = (torch.nn.functional.normalize(side) for side in raw)
    vectors.raw = [side.detach().numpy().copy() for side in raw]
    goal, losses = torch.arange(2), []
    for pair in rows:
        logits = x[pair] @ y[pair].T
        losses += [torch.nn.functional.cross_entropy(one, goal) for one in (logits, logits.T)]
    (sum(losses) / len(rows)).backward()
    expected = [(side - 0.5 * side.grad).detach().numpy() for side in raw]
    vectors.step(rows, 0.5)
    np.testing.assert_allclose(vectors.raw, expected, atol=1e-12)


def test_a_depth_first_search_goes_back_where_it_cannot_go_on():
    """On a line of rows: to one end, then from the start to the other."""
    n = batchsampler.BATCH_SIZE
    line = np.stack([np.r_[1:n, -1], np.arange(-1, n - 1)], axis=1)
    start, *others = batchsampler.depth_first(line, np.random.default_rng(0))
    assert 0 < start < n - 1
    up, down = list(range(start + 1, n)), list(range(start - 1, -1, -1))
    assert others in (up + down, down + up)


def test_theorem_3_as_printed_covers_all_rows():
    assert scns.theorem_3(1, 5) == 1
    # one row a batch: all M after M (1 + 1/2 + ... + 1/M) draws
    assert scns.theorem_3(6, 1) == pytest.approx(6 * sum(1 / i for i in range(1, 7)))


def test_a_mean_is_above_another_only_beyond_the_noise():
    found = {"a": {"false": [0.3, 0.32]}, "b": {"false": [0.1, 0.12]}, "c": {"false": [0.0, 0.6]}}
    assert batchsampler.above(found, "a", "b", "false")
    assert not batchsampler.above(found, "b", "a", "false")
    assert not batchsampler.above(found, "c", "b", "false")


def test_growth_is_told_as_a_power():
    assert gcbs.exponent({10: 1.0, 100: 100.0}) == pytest.approx(2)
    assert gcbs.exponent(gcbs.TABLE_11) < 2
    assert math.isclose(gcbs.exponent({2: 3.0, 8: 12.0}), 1)


def test_the_same_pairs_give_the_same_figures(few):
    effort = replace(QUICK, anchors=5, repeats=20)
    assert scns.measure(few, effort) == scns.measure(few, effort)
    assert batchsampler.measure(few, effort) == batchsampler.measure(few, effort)


def test_the_command_prints_a_table_for_each_paper(few, tmp_path, command, capsys):
    written = tmp_path / "found.json"
    command("scns", "--quick", "--data", str(few), "--json", str(written))
    printed = capsys.readouterr().out
    assert "## SCNS" in printed
    assert "| Equation 16 |" in printed
    assert '"verdict": "holds"' in written.read_text()


def test_a_paper_that_is_not_here_is_refused(command, capsys):
    with pytest.raises(SystemExit, match="2"):
        command("scns", "nothing")
    assert "no paper nothing" in capsys.readouterr().err


@pytest.fixture
def command(monkeypatch):
    def command(*arguments):
        monkeypatch.setattr("sys.argv", ["reproductions", *arguments])
        monkeypatch.chdir(ROOT)
        runpy.run_module("tests.benchmarks.reproductions", run_name="__main__")

    return command
