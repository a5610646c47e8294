"""`batchplan refine` as it is run."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchplan


@pytest.fixture
def plan(done, npy):
    """A plan of random batches of 8, and the arguments that refine it."""
    done("random", *npy, "-b", 8, "-o", "plan.npy", "-q")
    return ["refine", "plan.npy", *npy]


def loss(path, npy):
    made = batchplan.Plan.load(path)
    return batchplan.evaluate(made, batchplan.load_embeddings(npy[0], npy[2])).loss_train


def test_it_raises_the_loss_and_keeps_the_plan(done, plan, npy):
    before = Path("plan.npy").read_bytes()
    summary = json.loads(done(*plan, "--json").stdout)
    assert Path("plan.npy").read_bytes() == before
    gain = loss("refined.npy", npy) - loss("plan.npy", npy)
    assert gain > 0
    assert summary["refine_gain"] == pytest.approx(gain, abs=1e-6)
    assert summary["planner"] == "refine"
    stored = batchplan.Plan.load("refined.npy").metadata.options
    assert stored["planner"] == "random"
    assert stored["plan"].startswith("sha256:")


def test_the_summary_compares_with_the_plan_before(done, plan, npy):
    text = done(*plan).stderr
    start, end = (loss(path, npy) for path in ("plan.npy", "refined.npy"))
    assert f"{start:.4f} -> {end:.4f} nats ({end - start:+.4f}), from the plan before" in text


def test_zero_passes_change_nothing(done, plan):
    done(*plan, "--passes", 0)
    assert np.array_equal(np.load("plan.npy"), np.load("refined.npy"))


def test_refined_again_it_remembers_the_first_planner(done, plan, npy):
    done(*plan, "--passes", 1)
    done("refine", "refined.npy", *npy, "-o", "again.npy")
    assert batchplan.Plan.load("again.npy").metadata.options["planner"] == "random"


def test_a_plan_of_older_embeddings_of_the_same_rows(done, plan, pairs):
    np.save("x.npy", pairs[0] + 1)
    done(*plan)
    made = batchplan.Plan.load("refined.npy")
    assert made.metadata.fingerprint == batchplan.load_embeddings("x.npy", "y.npy").fingerprint


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--passes", -1], "passes: got -1, expected a number of at least 0"),
        (["--neighbors", 0], "neighbors: got 0, expected a number of at least 1"),
        (["--temperature", 0], "temperature: got 0.0, expected a finite number"),
        (["--guard-penalty", -1], "guard penalty: got -1.0, expected a number of at least 0"),
        (["-o", "plan.npy", "--force"], "plan.npy: would overwrite"),
        (["-b", 9], "batch size of the plan is 8, expected 9"),
    ],
)
def test_refusals(refused, plan, given, says):
    assert says in refused(*plan, *given, code=2 if ": got " in says else 3)


def test_what_a_plan_keeps_apart_is_named_again(done, refused, npy):
    columns = {"g": np.arange(48) // 2, "s": np.arange(48) // 24, "a": range(48), "p": range(48)}
    pq.write_table(pa.table(columns), "t.parquet")
    Path("known.tsv").write_text("0\t1\t1\n")
    table, size = ["--label-table", "t.parquet"], ["-b", 8, "-f", "-q", "-o", "plan.npy"]
    for lost in (
        "--group-column g",
        "--source-column s",
        "--anchor-id a --positive-id p --known known.tsv",
    ):
        named = lost.split()
        done("partition", *npy, *named, *table, *size)
        says = [f"{lost} --label-table t.parquet", "name them again"]
        refused("refine", "plan.npy", *npy, "--passes", 0, "-f", "-o", "refined.npy", parts=says)
        done("refine", "plan.npy", *npy, *named, *table, "-f", "-q", "-o", "refined.npy")
        refused("refine", "refined.npy", *npy, "-o", "again.npy", parts=says)


def test_ids_of_the_data_must_be_those_of_the_plan(done, refused, parquet):
    done("random", parquet, "-b", 8, "-q", "-o", "plan.parquet")
    table = pq.read_table(parquet)
    embedded = table.set_column(1, table.column_names[1], table[2])  # by a later model
    pq.write_table(embedded, "new.parquet")
    done("refine", "plan.parquet", "new.parquet", "-q")
    pq.write_table(embedded.take([*range(46), 47, 46]), "new.parquet")
    says = "the data: got the ids of the plan in another order"
    assert says in refused("refine", "plan.parquet", "new.parquet", "-f", "-q")
    done("random", parquet, "-b", 8, "-q")
    says = "the data: got other ids than were planned, or these in another order"
    assert says in refused("refine", "plan.npy", "new.parquet", "-f", "-q")
    done("refine", "plan.npy", "new.parquet", "-f", "-q", "--id-column", "")
    assert says in refused("refine", "refined.npy", "new.parquet", "-q", "-o", "again.npy")


def test_a_plan_of_other_data(refused, plan, pairs):
    for name, side in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", side[:-1])
    assert "number of rows of the plan is 48, expected 47" in refused(*plan)
