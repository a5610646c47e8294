"""--refine: every planner that partitions, with more loss in its batches than without."""

import json
from dataclasses import fields
from itertools import cycle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from batchplan import InputError, evaluate, refine
from batchplan.cli.app import app
from batchplan.planners import PLANNERS, plan
from batchplan.planners.common.options import PassOptions
from batchplan.plans import Plan
from tests.dense import unit_sides

TAILS = ("keep", "drop", "pad")
REFINED = [name for name, one in PLANNERS.items() if issubclass(one.options, PassOptions)]


@pytest.fixture(params=REFINED)
def planner(request):
    return request.param


def loss(made, embeddings, tau=0.05):
    """The mean over rows and directions of log sum exp, in float64."""
    x, y = unit_sides(embeddings)
    total = 0.0
    for batch in made.batches():
        logits = x[batch] @ y[batch].T / tau
        for one in (logits, logits.T):
            peak = one.max(axis=1)
            total += (peak + np.log(np.exp(one - peak[:, None]).sum(axis=1))).sum()
    return total / (2 * len(made.rows))


def made(planner, embeddings, **options):
    if planner == "partition":  # of all planners it alone keeps rows apart unless told otherwise
        options = {"guard": False, **options}
    if planner == "rwr":
        options = {"coverage": "partition", **options}
    return plan(embeddings, planner=planner, device="cpu", batch_size=8, **options)


def test_those_that_partition_refine():
    assert {"partition", "gcbs", "random", "shuffled", "knn", "cluster", "bcs", "scb",
            "rwr"} <= set(REFINED)  # fmt: skip
    for name in set(PLANNERS) - set(REFINED):
        assert "refine" not in {field.name for field in fields(PLANNERS[name].options)}


@pytest.mark.parametrize(
    ("planner", "tail"),
    [("partition", "drop"), ("partition", "pad"), *zip(REFINED, cycle(TAILS), strict=False)],
)
def test_the_loss_rises_by_what_it_says(planner, make, tail):
    embeddings = make(165)
    # Its tail is what comes after the refinement: other rows, whose loss differs.
    moves = planner == "partition" and tail != "keep"
    rises = []
    for seed in range(8 if moves else 1):
        before = made(planner, embeddings, tail=tail, refine=0, seed=seed)
        after = made(planner, embeddings, tail=tail, refine=3, seed=seed)
        rises.append(loss(after, embeddings) - loss(before, embeddings))
    if not moves:
        gain = after.metadata.metrics["refine_gain"]
        assert gain == pytest.approx(rises[0], rel=1e-3, abs=1e-7)
        assert np.array_equal(np.sort(after.rows), np.sort(before.rows))
    assert sum(rises) > 0
    assert after.metadata.metrics["passes"] >= 1
    assert np.array_equal(after.batch_offsets, before.batch_offsets)
    assert all(len(set(one.tolist())) == len(one) for one in after.batches())
    assert after.metadata.partitions_rows == before.metadata.partitions_rows == (tail == "keep")
    found = [evaluate(one, embeddings, random_trials=2) for one in (before, after)]
    assert found[1].loss_train > found[0].loss_train


def test_no_passes_change_nothing(planner, make):
    embeddings = make(90)
    default = made(planner, embeddings)
    same = made(planner, embeddings, refine=0)
    if planner == "partition":
        assert same.metadata.metrics == {"mega_batches": 2, "passes": 0, "refine_gain": 0.0}
        assert default.metadata.metrics["passes"] > 0
    else:
        assert np.array_equal(same.rows, default.rows)
        assert same.metadata == default.metadata
        assert "passes" not in same.metadata.metrics


def test_seeds_give_the_same_bytes(planner, make, tmp_path):
    for name in ("one", "two"):
        made(planner, make(90), refine=2, seed=4).save(tmp_path / f"{name}.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_samples_are_refined(make):
    embeddings = make(90)
    before, after = (made("rwr", embeddings, coverage="independent", refine=n) for n in (0, 2))
    assert loss(after, embeddings) > loss(before, embeddings)
    assert np.array_equal(np.sort(after.rows), np.sort(before.rows))
    assert all(len(set(one.tolist())) == 8 for one in after.batches())


def test_steps_of_several_devices_are_refined(planner, make):
    for scope in ("device", "global"):
        after = made(planner, make(90), refine=2, world_size=2, scope=scope, tail="drop")
        assert len(after.rows) == 80
        assert after.metadata.metrics["refine_gain"] > 0


def test_refusals(planner, make):
    for given, says in (
        ({"refine": -1}, "refine: got -1, expected a number of at least 0"),
        ({"refine": 1.5}, "refine: got 1.5, expected an integer"),
        ({"temperature": 0.0}, "temperature: got 0.0, expected a finite number"),
        ({"temperature": float("nan")}, "temperature: got nan, expected a finite number"),
    ):
        with pytest.raises(InputError) as error:
            made(planner, make(20), **given)
        assert str(error.value).startswith(says)


def test_zero_rows_have_no_cosine(make):
    embeddings = make(40)
    x = embeddings.x.rows(0, 40).copy()
    x[3] = 0
    zeros = type(embeddings).from_arrays(x)
    assert made("random", zeros).num_batches == 5
    with pytest.raises(InputError, match="row 3"):
        made("random", zeros, refine=1)
    assert made("random", zeros, refine=1, similarity="dot").num_batches == 5


def test_rows_of_no_source_are_a_source_of_their_own(make, tmp_path):
    names = np.array([["a", "b", None][k % 3] for k in range(120)], object)
    table, embeddings = tmp_path / "sources.parquet", make(120)
    pq.write_table(pa.table({"source": pa.array(names.tolist(), pa.string())}), table)
    before = made("random", embeddings)
    after = refine(before, embeddings, device="cpu", source_column="source", guard=False,
                   label_table=str(table))  # fmt: skip
    assert loss(after, embeddings) > loss(before, embeddings)
    for one, other in zip(before.batches(), after.batches(), strict=True):
        assert sorted(map(str, names[one])) == sorted(map(str, names[other]))


def test_command_line(some, tmp_path):
    out = tmp_path / "plan.npy"
    words = ["random", some, "--refine", 2, "-o", out, "--json", "--device", "cpu"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["passes"] == 2
    assert summary["refine_gain"] > 0
    assert Plan.load(out).metadata.options["refine"] == 2
