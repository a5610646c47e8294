"""hardneg and scns, as a user runs them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import evaluate_negatives
from batchplan.plans import Plan
from batchplan.plans.negatives import Negatives


@pytest.fixture
def rows():
    """A table of labels beside the 48 rows of the data."""
    columns = {"group": np.arange(48) % 24, "class": np.array(list("abcd"))[np.arange(48) % 4]}
    pq.write_table(pa.table(columns), "rows.parquet")
    return ["--label-table", "rows.parquet"]


@pytest.mark.parametrize("planner", ["hardneg", "scns"])
def test_the_default_output_is_a_table(planner, npy, done):
    result = done(planner, *npy, "-b", 8)
    assert result.stderr.endswith(" negatives.parquet\n")
    table = Negatives.load("negatives.parquet")
    assert f"{table.per_anchor} for each of 48 rows" in result.stderr
    assert (len(table), table.metadata.planner, table.metadata.batch_size) == (48, planner, 8)


@pytest.mark.parametrize("planner", ["hardneg", "scns"])
def test_the_default_output_of_batches_is_a_plan(planner, npy, done):
    result = done(planner, *npy, "-b", 24, "--as-batches")
    assert result.stderr.endswith(" plan.npy\n")
    assert Plan.load("plan.npy").metadata.planner == planner


def test_ids_and_json(parquet, done):
    document = json.loads(done("hardneg", parquet, "-b", 8, "--json").stdout)
    assert (document["num_anchors"], document["negatives_per_anchor"]) == (48, 1)
    assert "id" in pq.read_schema("negatives.parquet").names


def test_evaluate_measures_a_table(npy, done, refused):
    done("scns", *npy, "-b", 8, "--per-row", 3, "--mixup-beta", 0.5)
    table = Negatives.load("negatives.parquet")
    assert table.mixup.shape == table.probabilities.shape == (48, 3)
    found = json.loads(done("evaluate", "negatives.parquet", *npy, "--json").stdout)
    assert found == evaluate_negatives(table).to_dict()
    assert "3 for each of 48 rows" in done("evaluate", "negatives.parquet", *npy).stdout
    np.save("other.npy", np.eye(48, dtype=np.float32))
    said = refused("evaluate", "negatives.parquet", "other.npy", "--single")
    assert "negatives: made for data with fingerprint" in said


def test_only_parquet_holds_a_table(npy, refused, done):
    for output in ("a.npy", "-"):
        assert "needs the suffix .parquet" in refused("hardneg", *npy, "-b", 8, "-o", output)
    done("hardneg", *npy, "-b", 8)
    assert "--force" in refused("scns", *npy, "-b", 8)
    done("scns", *npy, "-b", 8, "--force")


def test_as_batches(npy, rows, done):
    done("scns", *npy, "-b", 8, "--per-row", 3, "--as-batches", "-o", "p.npy",
         "--group-column", "group", *rows)  # fmt: skip
    plan = Plan.load("p.npy")
    assert np.diff(plan.batch_offsets).tolist() == [8] * 24
    for batch in plan.batches():
        for place, anchor in enumerate(batch[:2]):
            assert not (batch[2 + 3 * place : 5 + 3 * place] % 24 == anchor % 24).any()
    assert plan.metadata.options["group_column"] == "group"


def test_class_level(npy, rows, done, refused):
    options = [*npy, "-b", 8, "--level", "class", "--label-column", "class", *rows]
    done("scns", *options, "-o", "c.parquet")
    table = Negatives.load("c.parquet")
    assert (table.negatives % 4 != table.anchors[:, None] % 4).all()
    assert "no such column" in refused("scns", *npy, "-b", 8, "--label-column", "no", *rows)
    assert "--label-table" in refused("scns", *npy, "-b", 8, "--label-column", "class")
