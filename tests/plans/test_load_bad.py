"""What load refuses, and how it says so: real broken files of every format."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchplan import InputError
from batchplan.plans import Plan

SUFFIXES = (".npy", ".parquet", ".npz", ".jsonl", ".txt")


def make(num_rows=10, **options):
    order = np.random.default_rng(3).permutation(num_rows)
    return Plan.cut(order, num_rows=num_rows, batch_size=4, **options)


def refused(path, *parts, **arguments):
    """Load must fail with one line that names the path and holds all the parts."""
    with pytest.raises(InputError) as error:
        Plan.load(path, **arguments)
    message = str(error.value)
    assert "\n" not in message
    for part in (str(path), *parts):
        assert part in message


def npy_bytes(values, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(values), **options)
    return stream.getvalue()


def edit_sidecar(path, **changes):
    sidecar = path.with_name(f"{path.name}.json")
    document = json.loads(sidecar.read_text()) | changes
    sidecar.write_text(json.dumps({k: v for k, v in document.items() if v is not ...}))
    return sidecar


# --- any format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_file_folder_and_special_file(tmp_path, suffix):
    refused(tmp_path / f"none{suffix}", "does not exist")
    (tmp_path / f"folder{suffix}").mkdir()
    refused(tmp_path / f"folder{suffix}", "not a regular file")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    refused(tmp_path / f"pipe{suffix}", "not a regular file")


@pytest.mark.parametrize("name", ["plan", "plan.csv", "plan.npy.json"])
def test_unknown_suffix(tmp_path, name):
    (tmp_path / name).touch()
    refused(tmp_path / name, "expected one of .npy, .parquet, .npz, .jsonl, .txt")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_file(tmp_path, suffix):
    path = tmp_path / f"plan{suffix}"
    path.touch()
    refused(path, batch_size=4)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
def test_other_batch_size_or_number_of_rows_than_asked_for(tmp_path, suffix):
    make().save(tmp_path / f"p{suffix}")
    refused(tmp_path / f"p{suffix}", "batch size of the plan is 4, but 8 was asked", batch_size=8)
    refused(tmp_path / f"p{suffix}", "number of rows of the plan is 10, but 11", num_rows=11)


# --- rows and batches ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1, 2, -3], "1 row numbers outside 0 to 2, the first is -3 at position 3"),
        ([0, 1, 1, 2], "1 rows repeated within a batch, first row 1 in batch 0"),
    ],
)
def test_bad_rows_without_metadata(tmp_path, rows, message):
    np.save(tmp_path / "p.npy", np.array(rows))
    refused(tmp_path / "p.npy", message, batch_size=4)


def test_rows_of_other_data(tmp_path):
    np.save(tmp_path / "p.npy", np.array([0, 7, 2, 9]))
    refused(
        tmp_path / "p.npy", "2 row numbers outside 0 to 4, the first is 7", batch_size=2, num_rows=5
    )
    np.save(tmp_path / "p.npy", np.array([0, 1]))
    refused(tmp_path / "p.npy", "batch size 3, expected 2 to 2", batch_size=3)
    refused(tmp_path / "p.npy", "batch size 1, expected 2 to 2", batch_size=1)


def rewrite_npz(path, rows=None, offsets=None, **changes):
    """A plan file whose parts do not fit, though its digest does."""
    from batchplan.plans.storage import _digest

    with np.load(path) as members:
        rows = members["rows"] if rows is None else np.array(rows)
        offsets = members["batch_offsets"] if offsets is None else np.array(offsets)
        document = json.loads(members["metadata"].tobytes())
    document |= {"digest": _digest(rows, offsets)} | changes
    text = np.frombuffer(json.dumps(document).encode(), np.uint8)
    np.savez(path, rows=rows, batch_offsets=offsets, metadata=text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]}, "1 rows repeated (0) and 2 rows missing (8, 9)"),
        ({"num_rows": 15}, "5 rows missing (10, 11, 12, ...), expected each of 15 rows once"),
        ({"num_rows": 10**18}, "rows missing (10, 11, 12, ...)"),
        ({"num_rows": 9}, "1 row numbers outside 0 to 8, the first is 9"),
        ({"offsets": [0, 4, 8, 9]}, "run from 0 to 9, expected from 0 to 10"),
        ({"offsets": [1, 4, 8, 10]}, "run from 1 to 10, expected from 0 to 10"),
        ({"offsets": [0, 4, 4, 10]}, "must increase; batch 1 runs from 4 to 4"),
        ({"offsets": [0, 8, 4, 10]}, "must increase; batch 1 runs from 8 to 4"),
        ({"offsets": [0]}, "run from 0 to 0, expected from 0 to 10"),
        ({"offsets": [0, 5, 10]}, "a batch of 5 rows, expected at most 4"),
        ({"batch_size": 3}, "a batch of 4 rows, expected at most 3"),
        ({"digest": None}, "metadata without digest"),
        ({"digest": "sha256:0"}, "belong to other rows"),
        ({"format_version": 9}, "format version 9 is newer than 1"),
        ({"tail": "wrap"}, "tail: got 'wrap', expected one of keep, drop, pad"),
    ],
)
def test_parts_that_do_not_fit(tmp_path, changes, message):
    make().save(tmp_path / "p.npz")
    rewrite_npz(tmp_path / "p.npz", **changes)
    refused(tmp_path / "p.npz", message)


def test_a_row_twice_in_a_batch_though_rows_may_repeat(tmp_path):
    make(tail="pad").save(tmp_path / "p.npz")
    rewrite_npz(tmp_path / "p.npz", rows=[0, 1, 2, 3, 3, 2, 5, 6, 9, 8, 7, 9])
    refused(tmp_path / "p.npz", "1 rows repeated within a batch, first row 9 in batch 2")


# --- without metadata ---------------------------------------------------------------------------


def test_npy_and_txt_need_a_batch_size(tmp_path):
    np.save(tmp_path / "p.npy", np.array([3, 1, 0, 2, 4], dtype=">u2"))
    (tmp_path / "p.txt").write_text("3\r\n1\n 0\n2\n4")
    for name in ("p.npy", "p.txt"):
        refused(tmp_path / name, "pass --batch-size")
        plan = Plan.load(tmp_path / name, batch_size=2)
        assert [b.tolist() for b in plan.batches()] == [[3, 1], [0, 2], [4]]
        assert plan.metadata.partitions_rows
        assert (plan.metadata.planner, plan.metadata.num_rows) == ("", 5)
        assert not Plan.load(tmp_path / name, batch_size=2, num_rows=9).metadata.partitions_rows


def test_jsonl_and_parquet_carry_their_batches(tmp_path):
    (tmp_path / "p.jsonl").write_text("[3, 1]\n[0, 2, 4]\n")
    table = {"batch": pa.array([7, 7, 2, 2, 2], pa.int8()), "row": pa.array([3, 1, 0, 2, 4])}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.parquet"):
        plan = Plan.load(tmp_path / name)
        assert [b.tolist() for b in plan.batches()] == [[3, 1], [0, 2, 4]]
        assert (plan.batch_size, plan.metadata.num_rows) == (3, 5)
        refused(tmp_path / name, "batch size of the plan is 3, but 2", batch_size=2)
    (tmp_path / "q.jsonl").write_text("[0]\n[1]\n")
    refused(tmp_path / "q.jsonl", "batch size 1, expected 2 to 2")


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
def test_sidecar_that_is_no_metadata(tmp_path, suffix, content, message):
    make().save(tmp_path / f"p{suffix}")
    (tmp_path / f"p{suffix}.json").write_bytes(content)
    refused(tmp_path / f"p{suffix}", f"p{suffix}.json", message)


@SIDECARS
def test_sidecar_of_another_plan(tmp_path, suffix):
    make().save(tmp_path / f"p{suffix}")
    other = Plan.cut(range(10), num_rows=10, batch_size=4)
    other.save(tmp_path / f"q{suffix}")
    os.replace(tmp_path / f"q{suffix}.json", tmp_path / f"p{suffix}.json")
    refused(tmp_path / f"p{suffix}", f"p{suffix}.json", "belong to other rows or batches")


@SIDECARS
@pytest.mark.parametrize("change", [{"digest": ...}, {"digest": 5}, {"seed": "x"}, {"tail": ...}])
def test_sidecar_with_wrong_or_missing_values(tmp_path, suffix, change):
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
def test_sidecar_with_bad_offsets(tmp_path, offsets, message):
    make().save(tmp_path / "p.npy")
    edit_sidecar(tmp_path / "p.npy", batch_offsets=offsets)
    refused(tmp_path / "p.npy", message)


# --- NPY ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not an array", "not a readable NPY array"),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr': ", "not a readable NPY array"),
        (b"\x93NUMPY\x03\x00" + npy_bytes([1, 2])[8:], "not a readable NPY array"),
        (npy_bytes([0.0, 1.0]), "dtype float64 and shape (2,), expected a one-dimensional array"),
        (npy_bytes([True, False]), "dtype bool"),
        (npy_bytes([[0, 1], [2, 3]]), "shape (2, 2)"),
        (npy_bytes(5), "shape ()"),
        (npy_bytes(np.array([], dtype=int)), "shape (0,)"),
        (npy_bytes(np.array([0, 1], dtype=object)), "dtype object"),
        (npy_bytes(np.array([2**64 - 1, 1], dtype=np.uint64)), "which int64 cannot hold"),
        (npy_bytes([0, 1, 2])[:-1], "23 bytes after the NPY header, expected 24"),
        (npy_bytes([0, 1, 2]) + b"x", "25 bytes after the NPY header, expected 24"),
    ],
)
def test_bad_npy(tmp_path, content, message):
    (tmp_path / "p.npy").write_bytes(content)
    refused(tmp_path / "p.npy", message, batch_size=2)


def test_npy_header_that_claims_an_exabyte_allocates_nothing(tmp_path):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (10**17,), }".replace(
        b"10**17", b"100000000000000000"
    )
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
    (tmp_path / "p.npy").write_bytes(content)
    refused(tmp_path / "p.npy", "truncated", batch_size=2)


def test_a_pickle_is_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "boom"), "w"))

    (tmp_path / "p.npy").write_bytes(pickle.dumps(Bomb()))
    refused(tmp_path / "p.npy", batch_size=2)
    np.save(tmp_path / "q.npy", np.array([Bomb(), Bomb()]), allow_pickle=True)
    refused(tmp_path / "q.npy", "dtype object", batch_size=2)
    assert not (tmp_path / "boom").exists()


# --- NPZ ----------------------------------------------------------------------------------------


def test_npz_that_is_no_zip_or_lacks_members(tmp_path):
    path = tmp_path / "p.npz"
    path.write_bytes(npy_bytes([0, 1]))
    refused(path, "not a readable NPZ")
    np.savez(path, rows=np.arange(4))
    refused(path, "no member batch_offsets, expected rows, batch_offsets, metadata")
    np.savez(path, np.arange(4))
    refused(path, "no member rows")


def test_npz_with_wrong_members(tmp_path):
    path = tmp_path / "p.npz"
    good = {"rows": np.arange(4), "batch_offsets": np.array([0, 4]), "metadata": np.arange(3)}
    np.savez(path, **good)
    refused(path, "metadata is not JSON")
    np.savez(path, **good | {"rows": np.arange(4.0)})
    refused(path, "member rows", "dtype float64")
    np.savez(path, **good | {"batch_offsets": np.array([0, None])})
    refused(path, "member batch_offsets", "dtype object")


def test_zip_bomb(tmp_path):
    path = tmp_path / "p.npz"
    np.savez_compressed(path, rows=np.zeros(4_000_000, dtype=np.int64))
    assert path.stat().st_size < 100_000
    refused(path, "member rows", "claims 32000128 bytes", "more than row numbers can shrink")


def test_encrypted_or_oddly_compressed_npz(tmp_path):
    path = tmp_path / "p.npz"
    make().save(path)
    content = bytearray(path.read_bytes())
    for at in find_all(content, b"PK\x01\x02"):  # the flags of each entry of the directory
        content[at + 8] |= 1
    path.write_bytes(content)
    refused(path, "member rows", "is encrypted")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("rows.npy", npy_bytes([0, 1]))
    refused(path, "compression method 14")


def find_all(content, pattern):
    at = content.find(pattern)
    while at >= 0:
        yield at
        at = content.find(pattern, at + 1)


# --- Parquet ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"row": [0, 1]}, "no column batch among row"),
        ({"a": [0, 1]}, "no column batch nor row among a"),
        ({"batch": [0, 0], "row": [0, None]}, "column row: 1 nulls"),
        ({"batch": [None, 0], "row": [0, 1]}, "column batch: 1 nulls"),
        ({"batch": [0, 0], "row": [0.0, 1.0]}, "column row: dtype float64, expected integers"),
        ({"batch": ["a", "a"], "row": [0, 1]}, "column batch: dtype object"),
        ({"batch": [[0], [0]], "row": [0, 1]}, "column batch: dtype object"),
        ({"batch": [0, 1, 1, 0], "row": [0, 1, 2, 3]}, "batch 0 starts again at entry 3"),
    ],
)
def test_bad_parquet_columns(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    refused(tmp_path / "p.parquet", message)


def test_parquet_that_is_none_or_has_bad_metadata(tmp_path):
    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1" * 10)
    refused(path, "not a readable Parquet file")
    table = pa.table({"batch": [0, 0], "row": [0, 1]})
    pq.write_table(table.replace_schema_metadata({b"batchplan": b"{"}), path)
    refused(path, "metadata is not JSON")
    pq.write_table(table.slice(0, 0), path)
    refused(path, "expected one dimension and no empty one")


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["", "x", "1.0", "1 2", "1_0", "1,2", "9" * 20, "9" * 5000, "\x00"]
)
def test_bad_line_of_txt(tmp_path, line):
    (tmp_path / "p.txt").write_text(f"3\n1\n{line}\n0\n")
    refused(tmp_path / "p.txt", "line 3: got", "expected one row number a line", batch_size=2)


@pytest.mark.parametrize(
    "line",
    [
        *("", "x", "3", "{}", "[]", "[1, 2.0]", "[true, 1]", "[1, null]", "[[1]]", "[1] [2]", "[1"),
        *(f"[{'9' * 20}]", f"[{'9' * 5000}]", "[" * 100_000),
    ],
)
def test_bad_line_of_jsonl(tmp_path, line):
    (tmp_path / "p.jsonl").write_text(f"[3, 1]\n{line}\n[0, 2]\n")
    refused(tmp_path / "p.jsonl", "line 2: got", "expected a JSON list of row numbers")


def test_bad_line_far_down(tmp_path):
    lines = [str(n) for n in range(700_000)]
    lines[654_320] = "oops"
    (tmp_path / "p.txt").write_text("\n".join(lines))
    refused(tmp_path / "p.txt", "line 654321: got b'oops'", batch_size=2)
