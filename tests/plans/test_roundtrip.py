"""Every format gives back the plan that was saved, and the same plan gives the same bytes."""

import json
import subprocess
import sys
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Batching, Plan, PlanMetadata
from batchplan.plans.validation import narrow

BATCH_ORDERS = ("planned", "shuffled")
TAILS = ("keep", "drop", "pad")
SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")
in_every_format = pytest.mark.parametrize("suffix", SUFFIXES)


def make(num_rows=11, batch_size=4, tail="keep", **facts):
    order = np.random.default_rng(5).permutation(num_rows)
    return Plan.cut(order, Batching(batch_size, tail=tail), num_rows=num_rows, **facts)


def assert_same(got, expected):
    np.testing.assert_array_equal(got.rows, expected.rows)
    np.testing.assert_array_equal(got.batch_offsets, expected.batch_offsets)
    assert (got.rows.dtype, got.batch_offsets.dtype) == (np.int64, np.int64)
    assert got.metadata == expected.metadata


@in_every_format
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    num_rows=st.integers(2, 40),
    data=st.data(),
    tail=st.sampled_from(TAILS),
    batch_order=st.sampled_from(BATCH_ORDERS),
)
def test_load_gives_what_was_saved(tmp_path, suffix, num_rows, data, tail, batch_order):
    plan = Plan.cut(
        data.draw(st.permutations(range(num_rows))),
        Batching(data.draw(st.integers(2, num_rows)), tail=tail, batch_order=batch_order),
        num_rows=num_rows,
        generator=np.random.Generator(np.random.Philox(0)),
        planner="knn",
        options={"k": 3, "nested": {"a": [1.5, None]}},
        seed=data.draw(st.none() | st.integers(0, 2**70)),
        fingerprint=data.draw(st.none() | st.text()),
        metrics={"cut": 0.25},
    )
    path = tmp_path / f"plan{suffix}"
    plan.save(path, force=True)
    assert_same(Plan.load(path), plan)
    assert_same(Plan.load(str(path), batch_size=plan.batch_size, num_rows=num_rows), plan)


@in_every_format
def test_batches_of_uneven_sizes(tmp_path, suffix):
    facts = PlanMetadata(batch_size=3, num_rows=6, partitions_rows=True)
    plan = Plan(np.array([5, 4, 3, 2, 1, 0]), np.array([0, 2, 5, 6]), facts)
    plan.save(tmp_path / f"plan{suffix}")
    assert_same(Plan.load(tmp_path / f"plan{suffix}"), plan)


@in_every_format
def test_rows_drawn_with_replacement(tmp_path, suffix):
    facts = PlanMetadata(batch_size=2, num_rows=9, partitions_rows=False)
    plan = Plan(np.array([5, 4, 5, 2]), np.array([0, 2, 4]), facts)
    plan.save(tmp_path / f"plan{suffix}")
    assert_same(Plan.load(tmp_path / f"plan{suffix}"), plan)


@in_every_format
def test_two_saves_at_different_times_are_byte_equal(tmp_path, suffix, monkeypatch):
    make(options={"b": 1, "a": 2}).save(tmp_path / f"one{suffix}")
    later = time.time() + 1e7
    monkeypatch.setattr(time, "time", lambda: later)  # what zipfile would stamp
    make(options={"a": 2, "b": 1}).save(tmp_path / f"two{suffix}")
    for ending in (suffix, f"{suffix}.json"):
        one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
        assert one.exists() == two.exists()
        assert not one.exists() or one.read_bytes() == two.read_bytes()


def test_what_the_files_hold(tmp_path):
    plan = make()
    for suffix in SUFFIXES:
        plan.save(tmp_path / f"p{suffix}")
    rows = np.load(tmp_path / "p.npy", allow_pickle=False)
    assert rows.dtype == np.dtype("<i4")
    assert rows.tolist() == plan.rows.tolist()
    assert np.loadtxt(tmp_path / "p.txt", dtype=int).tolist() == rows.tolist()
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [b.tolist() for b in plan.batches()]
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.remove_metadata() == pa.schema([("batch", pa.int64()), ("row", pa.int64())])
    assert table["batch"].to_pylist() == plan.batch_of_entry().tolist()
    assert json.loads(table.schema.metadata[b"batchplan"])["num_rows"] == 11
    with np.load(tmp_path / "p.npz", allow_pickle=False) as members:
        assert members["rows"].dtype == np.dtype("<i4")
        assert members["rows"].tolist() == rows.tolist()
        assert members["batch_offsets"].tolist() == [0, 4, 8, 11]
        assert json.loads(members["metadata"].tobytes())["batch_size"] == 4
    names = {path.name for path in tmp_path.iterdir()}
    sidecars = {f"p{suffix}.json" for suffix in (".npy", ".jsonl", ".txt")}
    assert names == {f"p{suffix}" for suffix in SUFFIXES} | sidecars


def test_offsets_are_stored_only_where_nothing_else_tells_them(tmp_path):
    make().save(tmp_path / "p.npy")
    assert "batch_offsets" not in json.loads((tmp_path / "p.npy.json").read_text())


@pytest.mark.parametrize(
    "ids",
    [
        np.array([f"id{n}" for n in range(11)]),
        np.arange(11) * 10,
        pa.array([f"id{n}" for n in range(11)]),
        pa.chunked_array([[f"id{n}" for n in range(5)], [f"id{n}" for n in range(5, 11)]]),
    ],
)
def test_ids_follow_their_rows(tmp_path, ids):
    plan = make(tail="pad")
    plan.save(tmp_path / "p.parquet", ids=ids)
    plan.save(tmp_path / "p.npy", ids=ids)
    got = pq.read_table(tmp_path / "p.parquet")["id"].to_pylist()
    everything = ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist()
    assert got == [everything[row] for row in plan.rows]
    assert_same(Plan.load(tmp_path / "p.parquet"), plan)


def test_ids_that_do_not_fit(tmp_path):
    with pytest.raises(InputError, match="ids: got 3, expected one for each of 11 rows"):
        make().save(tmp_path / "p.parquet", ids=np.arange(3))
    with pytest.raises(InputError, match="ids: cannot be a Parquet column"):
        make().save(tmp_path / "p.parquet", ids=[object()] * 11)
    assert list(tmp_path.iterdir()) == []


def test_compressed_npz_of_another_writer(tmp_path):
    plan = make(num_rows=300_000, batch_size=64)
    plan.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as members:
        np.savez_compressed(tmp_path / "q.npz", **members)
    assert_same(Plan.load(tmp_path / "q.npz"), plan)
    with zipfile.ZipFile(tmp_path / "p.npz") as archive:
        assert archive.testzip() is None


def test_dash_is_text_on_standard_output(tmp_path, capfdbinary):
    make().save("-")
    make().save(tmp_path / "p.txt")
    assert capfdbinary.readouterr().out == (tmp_path / "p.txt").read_bytes()


def test_standard_output_that_cannot_be_written():
    script = (
        "import sys; from batchplan import OutputError\n"
        "from batchplan.plans import Batching, Plan\n"
        "try: Plan.cut(range(9999), Batching(2), num_rows=9999).save('-')\n"
        "except OutputError as error: print(error, file=sys.stderr)\n"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE)
    assert b"standard output: could not be written (No space left" in done.stderr


def test_rows_that_int32_cannot_hold():
    for largest, kind in ((2**31 - 1, np.int32), (2**31, np.int64)):
        rows = np.array([largest, 0, 7])
        stored = narrow(rows)
        assert stored.dtype == kind
        assert stored.tolist() == rows.tolist()
