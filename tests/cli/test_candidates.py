"""Plans from lists of candidates, as a user runs them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.plans import Plan


@pytest.fixture
def lists(folder, pairs):
    """mined.parquet: the ten most similar rows of each of the 48, and ids."""
    x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in pairs)
    S = x @ y.T
    positive = np.diagonal(S).copy()
    np.fill_diagonal(S, -9)
    order = np.argsort(-S, axis=1, kind="stable")[:, :10]
    names = [f"row {i}" for i in range(48)]
    columns = {
        "id": names,
        "ids": [[names[j] for j in row] for row in order],
        "scores": list(np.take_along_axis(S, order, 1)),
        "positive": positive,
    }
    pq.write_table(pa.table(columns), "mined.parquet")
    return ["--candidates", "mined.parquet"]


def test_plan_refine_and_evaluate(lists, done):
    summary = done("partition", *lists, "-b", 8, "-o", "plan.parquet").stderr
    assert "48 with 480 candidates" in summary
    assert pq.read_table("plan.parquet")["id"].to_pylist()[0].startswith("row ")
    printed = done("evaluate", "plan.parquet", *lists).stdout
    for words in ("hard negatives in batch", "pairs that break the guard", "unknown without"):
        assert words in printed
    found = json.loads(done("evaluate", "plan.parquet", *lists, "--json").stdout)
    assert found["num_rows"] == 48
    assert found["hard_negative_recall"]["1"] > 0
    done("random", *lists, "-b", 8, "-o", "random.npy")
    done("refine", "random.npy", *lists, "-o", "refined.npy", "--no-guard")
    before, after = (
        json.loads(done("evaluate", name, *lists, "--json").stdout)["listed_share"]
        for name in ("random.npy", "refined.npy")
    )
    assert after > before
    document = json.loads(done("partition", *lists, "-b", 8, "-o", "b.npy", "--json").stdout)
    assert np.array_equal(Plan.load("b.npy").rows, Plan.load("plan.parquet").rows)
    assert "dim" not in document


def test_lists_in_another_order(lists, done, refused):
    done("random", *lists, "-b", 8)
    pq.write_table(pq.read_table("mined.parquet")[::-1], "other.parquet")
    wrong = "the data: got other ids than were planned, or these in another order"
    refused("evaluate", "plan.npy", "--candidates", "other.parquet", parts=[wrong])


def test_refusals(lists, npy, refused, run, folder):
    assert "given with embeddings" in refused("partition", *npy, *lists, "-b", 8, code=2)
    assert "no such file" in refused("partition", "--candidates", "no.parquet", "-b", 8)
    assert "needs vectors" in refused("partition", *lists, "-b", 8, "--mega-batches", "auto")
    for command in (["gcbs", *lists], ["partition", "-b", 8]):
        assert run(*command).exit_code == 2
    table = pq.read_table("mined.parquet")
    pq.write_table(table.slice(0, 20), "part.parquet")
    message = refused("partition", "--candidates", "part.parquet", "-b", 8)
    assert "which is not in the column 'id'" in message
    assert sorted(path.name for path in folder.glob("plan*")) == []


def test_groups_need_vectors(lists, done, refused):
    done("random", *lists, "-b", 8, "-o", "plan.npy")
    message = refused("evaluate", "plan.npy", *lists, "--group-column", "id", code=2)
    assert "which needs vectors" in message
