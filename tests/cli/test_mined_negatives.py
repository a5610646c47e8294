"""Rows with mined negatives, as a user plans, measures and describes them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.plans import Plan

SIZE = ["-b", 8]


@pytest.fixture
def mined(npy, pairs):
    """first.npy and second.npy: negatives of each row; the first one of row 0 is y of row 5."""
    rng = np.random.default_rng(3)
    negatives = [pairs[0] + rng.standard_normal(pairs[0].shape).astype(np.float32) for _ in "ab"]
    negatives[0][0] = pairs[1][5]
    negatives[1][3] = pairs[1][3]  # a false one
    negatives[1][7] = 0  # missing
    for name, side in zip(("first", "second"), negatives, strict=True):
        np.save(f"{name}.npy", side)
    columns = {"anchor": pairs[0], "positive": pairs[1], "negative_1": negatives[0]}
    columns["negative_2"] = negatives[1]
    table = {name: pa.array(list(side)) for name, side in columns.items()}
    pq.write_table(pa.table(table), "tuples.parquet")
    return [*npy, "--negatives", "first.npy", "--negatives", "second.npy"]


def test_from_negatives_to_a_verdict(mined, done):
    summary = done("partition", *mined, *SIZE, "-o", "plan.npy").stderr
    assert "48 x 8 float32, 2 mined negatives a row" in summary
    same = json.loads(done("partition", "tuples.parquet", *SIZE, "-o", "b.npy", "--json").stdout)
    assert np.array_equal(Plan.load("plan.npy").rows, Plan.load("b.npy").rows)
    assert Plan.load("plan.npy").metadata.fingerprint == same["fingerprint"]
    printed = done("evaluate", "plan.npy", *mined).stdout
    assert "of 95, in" in printed  # false mined negatives
    assert "the most similar of them" in printed
    found = json.loads(done("evaluate", "plan.npy", "tuples.parquet", "--json").stdout)
    assert found["guard"]["mined"]["negatives"] == 95
    worst = found["guard"]["mined"]["examples"]
    assert {"row": 3, "negative": 2} in [
        {key: one[key] for key in ("row", "negative")} for one in worst
    ]
    assert all(not {0, 5} <= set(batch) for batch in Plan.load("plan.npy").batches())
    done("refine", "plan.npy", *mined, "-o", "refined.npy", "--no-guard")
    done("check", "refined.npy", *mined, "--write-baseline", "base.json")


def test_inspect_compares_them(mined, done):
    found, without = (
        [
            one["kept_away"]
            for one in json.loads(done("inspect", *inputs, "--json").stdout)["guards"]
        ]
        for inputs in (mined, ["tuples.parquet", "--negatives", "none"])
    )
    assert all(a >= b for a, b in zip(found, without, strict=True))
    assert found != without


def test_the_report_shows_false_ones(mined, done, folder):
    done("random", *mined, *SIZE, "-o", "plan.npy")
    names = ("negative_2", "negative_1", "anchor", "positive")  # numbers count, not places
    texts = {name: [f"{name} of {row}" for row in range(48)] for name in names}
    pq.write_table(pa.table(texts), "texts.parquet")
    done("report", "plan.npy", *mined, "--text-table", "texts.parquet", "-o", "report.html")
    page = (folder / "report.html").read_text()
    assert "<h2>False mined negatives</h2>" in page
    assert "Row 3, negative 2" in page
    assert "negative_2 of 3" in page


def test_compare_and_plan(mined, done):
    printed = done("compare", *mined, *SIZE, "--planners", "random,partition").stdout
    assert "partition" in printed
    chosen = done("plan", *mined, *SIZE, "-o", "plan.npy").stderr
    assert "--negatives first.npy --negatives second.npy" in chosen


def test_refusals(mined, refused, pairs):
    for planner in ("knn", "chain"):
        message = refused(planner, "tuples.parquet", *SIZE)
        assert f"got 2 mined negatives per row, but {planner} plans pairs; use partition" in message
        assert "--negatives none" in message
    np.save("short.npy", pairs[0][:9])
    assert "x and negatives: got 48 and 9 rows" in refused(
        "random", "x.npy", "--pair", "y.npy", "--negatives", "short.npy", *SIZE
    )
    assert "no such file" in refused(
        "random", "x.npy", "--pair", "y.npy", "--negatives", "no.npy", *SIZE
    )
    options = ["--reference", "x.npy", "--reference-pair", "y.npy", "--relative-margin", "0.1"]
    assert "reference: given with mined negatives" in refused("partition", *mined, *options, *SIZE)


def test_a_plan_of_pairs_is_not_judged_by_tuples(mined, npy, done, refused):
    done("random", *npy, *SIZE, "-o", "plan.npy")
    assert "fingerprint" in refused("evaluate", "plan.npy", *mined)
