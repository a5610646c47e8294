"""What load refuses in any format: missing files, rows and batches, metadata that do not fit."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Batching, Plan

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")


def make(num_rows=10, **options):
    order = np.random.default_rng(3).permutation(num_rows)
    return Plan.cut(order, Batching(4, **options), num_rows=num_rows)


def edit_sidecar(path, **changes):
    sidecar = path.with_name(f"{path.name}.json")
    document = json.loads(sidecar.read_text()) | changes
    sidecar.write_text(json.dumps({k: v for k, v in document.items() if v is not ...}))
    return sidecar


# --- any format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_file_folder_and_special_file(refused, tmp_path, suffix):
    refused(tmp_path / f"none{suffix}", "does not exist")
    (tmp_path / f"folder{suffix}").mkdir()
    refused(tmp_path / f"folder{suffix}", "not a regular file")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    refused(tmp_path / f"pipe{suffix}", "not a regular file")


@pytest.mark.parametrize("name", ["plan", "plan.csv", "plan.npy.json"])
def test_unknown_suffix(refused, tmp_path, name):
    (tmp_path / name).touch()
    refused(tmp_path / name, "expected one of .npy, .parquet, .npz, .jsonl, .txt")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_file(refused, tmp_path, suffix):
    path = tmp_path / f"plan{suffix}"
    path.touch()
    refused(path, batch_size=4)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_still_the_same_plan(tmp_path, suffix, data):
    path = tmp_path / f"plan{suffix}"
    plan = make()
    plan.save(path, force=True)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(content[:cut])
    else:
        path.write_bytes(content[:cut] + data.draw(st.binary(min_size=1)) + content[cut + 1 :])
    try:
        loaded = Plan.load(path)
    except InputError:
        return
    assert loaded.rows.tolist() == plan.rows.tolist()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_batch_size_or_number_of_rows_than_asked_for(refused, tmp_path, suffix):
    make().save(tmp_path / f"p{suffix}")
    refused(tmp_path / f"p{suffix}", "batch size of the plan is 4, expected 8", batch_size=8)
    refused(tmp_path / f"p{suffix}", "number of rows of the plan is 10, expected 11", num_rows=11)


# --- rows and batches ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1, 2, -3], "1 row numbers outside 0 to 2, the first is -3 at position 3"),
        ([0, 1, 1, 3], "1 rows repeated within a batch, first row 1 in batch 0"),
    ],
)
def test_bad_rows_without_metadata(refused, tmp_path, rows, message):
    np.save(tmp_path / "p.npy", np.array(rows))
    refused(tmp_path / "p.npy", message, batch_size=4)


def test_rows_of_other_data(refused, tmp_path):
    np.save(tmp_path / "p.npy", np.array([0, 7, 2, 9]))
    refused(
        tmp_path / "p.npy", "2 row numbers outside 0 to 4, the first is 7", batch_size=2, num_rows=5
    )
    np.save(tmp_path / "p.npy", np.array([0, 1]))
    refused(tmp_path / "p.npy", "batch size: got 3, expected at most", batch_size=3)
    refused(tmp_path / "p.npy", "batch size: got 1, expected a", batch_size=1)


def rewrite_npz(path, rows=None, offsets=None, **changes):
    """A plan file whose parts do not fit, though its digest does."""
    with np.load(path) as members:
        rows = members["rows"] if rows is None else np.array(rows)
        offsets = members["batch_offsets"] if offsets is None else np.array(offsets)
        document = json.loads(members["metadata"].tobytes())
    document |= {"digest": Plan(rows, offsets, None).digest} | changes
    text = np.frombuffer(json.dumps(document).encode(), np.uint8)
    np.savez(path, rows=rows, batch_offsets=offsets, metadata=text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]}, "2 rows repeated and 2 missing"),
        ({"num_rows": 15}, "0 rows repeated and 5 missing, expected each of 15 rows once"),
        ({"num_rows": 10**18}, "missing, expected each of"),
        ({"num_rows": 9}, "1 row numbers outside 0 to 8, the first is 9"),
        ({"offsets": [0, 4, 8, 9]}, "must increase from 0 to 10"),
        ({"offsets": [1, 4, 8, 10]}, "must increase from 0 to 10"),
        ({"offsets": [0, 4, 4, 10]}, "must increase from 0 to 10"),
        ({"offsets": [0, 8, 4, 10]}, "must increase from 0 to 10"),
        ({"offsets": [0]}, "must increase from 0 to 10"),
        ({"offsets": [0, 5, 10]}, "a batch of 5 rows, expected at most 4"),
        ({"batch_size": 3}, "a batch of 4 rows, expected at most 3"),
        ({"digest": None}, "the digest differs"),
        ({"digest": "sha256:0"}, "belong to other rows"),
        ({"format_version": 9}, "format version 9 is newer than 1"),
        ({"tail": "wrap"}, "tail: got 'wrap', expected keep or drop or pad"),
    ],
)
def test_parts_that_do_not_fit(refused, tmp_path, changes, message):
    make().save(tmp_path / "p.npz")
    rewrite_npz(tmp_path / "p.npz", **changes)
    refused(tmp_path / "p.npz", message)


def test_a_row_twice_in_a_batch_though_rows_may_repeat(refused, tmp_path):
    make(tail="pad").save(tmp_path / "p.npz")
    rewrite_npz(tmp_path / "p.npz", rows=[0, 1, 2, 3, 3, 2, 5, 6, 9, 8, 7, 9])
    refused(tmp_path / "p.npz", "1 rows repeated within a batch, first row 9 in batch 2")


# --- without metadata ---------------------------------------------------------------------------


def test_npy_and_txt_need_a_batch_size(refused, tmp_path):
    np.save(tmp_path / "p.npy", np.array([3, 1, 0, 2, 4], dtype=">u2"))
    (tmp_path / "p.txt").write_text("3\r\n1\n 0\n2\n4")
    for name in ("p.npy", "p.txt"):
        refused(tmp_path / name, "pass --batch-size")
        plan = Plan.load(tmp_path / name, batch_size=2)
        assert [b.tolist() for b in plan.batches()] == [[3, 1], [0, 2], [4]]
        assert plan.metadata.partitions_rows
        assert (plan.metadata.planner, plan.metadata.num_rows) == ("", 5)
        assert not Plan.load(tmp_path / name, batch_size=2, num_rows=9).metadata.partitions_rows


def test_jsonl_and_parquet_carry_their_batches(refused, tmp_path):
    (tmp_path / "p.jsonl").write_text("[3, 1]\n[0, 2, 4]\n")
    table = {"batch": pa.array([7, 7, 2, 2, 2], pa.int8()), "row": pa.array([3, 1, 0, 2, 4])}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.parquet"):
        plan = Plan.load(tmp_path / name)
        assert [b.tolist() for b in plan.batches()] == [[3, 1], [0, 2, 4]]
        assert (plan.batch_size, plan.metadata.num_rows) == (3, 5)
        refused(tmp_path / name, "batch size of the plan is 3, expected 2", batch_size=2)
    (tmp_path / "q.jsonl").write_text("[0]\n[1]\n")
    refused(tmp_path / "q.jsonl", "batch size: got 1, expected a")


# --- sidecars -----------------------------------------------------------------------------------

SIDECARS = pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".txt"])


@SIDECARS
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "metadata is not JSON"),
        (b"\xff\xfe", "metadata is not JSON"),
        (b"[" * 100_000, "metadata is not JSON"),
        (b"[1]", "is a JSON list, expected an object"),
        (b"{}", "metadata without format_version, planner"),
    ],
)
def test_sidecar_that_is_no_metadata(refused, tmp_path, suffix, content, message):
    make().save(tmp_path / f"p{suffix}")
    (tmp_path / f"p{suffix}.json").write_bytes(content)
    refused(tmp_path / f"p{suffix}", f"p{suffix}.json", message)


@SIDECARS
def test_sidecar_of_another_plan(refused, tmp_path, suffix):
    make().save(tmp_path / f"p{suffix}")
    other = Plan.cut(range(10), Batching(4), num_rows=10)
    other.save(tmp_path / f"q{suffix}")
    os.replace(tmp_path / f"q{suffix}.json", tmp_path / f"p{suffix}.json")
    refused(tmp_path / f"p{suffix}", f"p{suffix}.json", "belong to other rows or batches")


@SIDECARS
@pytest.mark.parametrize("change", [{"digest": ...}, {"digest": 5}, {"seed": "x"}, {"tail": ...}])
def test_sidecar_with_wrong_or_missing_values(refused, tmp_path, suffix, change):
    make().save(tmp_path / f"p{suffix}")
    edit_sidecar(tmp_path / f"p{suffix}", **change)
    refused(tmp_path / f"p{suffix}", f"p{suffix}.json", *change)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ("0, 4", "expected a list of int64 integers"),
        ([], "expected a list of int64 integers"),
        ([0, 4.0, 10], "expected a list of int64 integers"),
        ([False, 4, 10], "expected a list of int64 integers"),
        ([0, 2**63, 10], "expected a list of int64 integers"),
        ([0, 2**70, 10], "expected a list of int64 integers"),
        ([0, 4, 10], "belong to other rows or batches"),
    ],
)
def test_sidecar_with_bad_offsets(refused, tmp_path, offsets, message):
    make().save(tmp_path / "p.npy")
    edit_sidecar(tmp_path / "p.npy", batch_offsets=offsets)
    refused(tmp_path / "p.npy", message)
