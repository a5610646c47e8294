"""Broken files of each format, real ones: load refuses them and says what is wrong and where."""

import io
import pickle
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.plans import Batching, Plan


def make(num_rows=10, **options):
    order = np.random.default_rng(3).permutation(num_rows)
    return Plan.cut(order, Batching(4, **options), num_rows=num_rows)


def npy_bytes(values, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(values), **options)
    return stream.getvalue()


# --- NPY ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not an array", "not a readable NPY array"),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr': ", "not a readable NPY array"),
        (b"\x93NUMPY\x03\x00" + npy_bytes([1, 2])[8:], "not a readable NPY array"),
        (npy_bytes([0.0, 1.0]), "dtype float64 and shape (2,), expected a plan, a one-dimensional"),
        (npy_bytes([True, False]), "dtype bool"),
        (npy_bytes([[0, 1], [2, 3]]), "shape (2, 2)"),
        (npy_bytes(5), "shape ()"),
        (npy_bytes(np.array([], dtype=int)), "shape (0,)"),
        (npy_bytes(np.array([0, 1], dtype=object)), "dtype object"),
        (npy_bytes(np.array([2**64 - 1, 1], dtype=np.uint64)), "which int64 cannot hold"),
        (npy_bytes([0, 1, 2])[:-1], "truncated or too long for shape (3,) and dtype int64"),
        (npy_bytes([0, 1, 2]) + b"x", "truncated or too long for shape (3,) and dtype int64"),
    ],
)
def test_bad_npy(refused, tmp_path, content, message):
    (tmp_path / "p.npy").write_bytes(content)
    refused(tmp_path / "p.npy", message, batch_size=2)


def test_npy_header_that_claims_an_exabyte_allocates_nothing(refused, tmp_path):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (10**17,), }".replace(
        b"10**17", b"100000000000000000"
    )
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
    (tmp_path / "p.npy").write_bytes(content)
    refused(tmp_path / "p.npy", "truncated", batch_size=2)


def test_a_pickle_is_never_opened(refused, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "boom"), "w"))

    (tmp_path / "p.npy").write_bytes(pickle.dumps(Bomb()))
    refused(tmp_path / "p.npy", batch_size=2)
    np.save(tmp_path / "q.npy", np.array([Bomb(), Bomb()]), allow_pickle=True)
    refused(tmp_path / "q.npy", "dtype object", batch_size=2)
    assert not (tmp_path / "boom").exists()


# --- NPZ ----------------------------------------------------------------------------------------


def test_npz_that_is_no_zip_or_lacks_members(refused, tmp_path):
    path = tmp_path / "p.npz"
    path.write_bytes(npy_bytes([0, 1]))
    refused(path, "not a readable NPZ")
    np.savez(path, rows=np.arange(4))
    refused(path, "no item named 'batch_offsets.npy'", "save your own row numbers as .npy")
    np.savez(path, np.arange(4))
    refused(path, "no item named 'rows.npy'")


def test_npz_with_wrong_members(refused, tmp_path):
    path = tmp_path / "p.npz"
    good = {"rows": np.arange(4), "batch_offsets": np.array([0, 4]), "metadata": np.arange(3)}
    np.savez(path, **good)
    refused(path, "metadata is not JSON")
    np.savez(path, **good | {"rows": np.arange(4.0)})
    refused(path, "member rows", "dtype float64")
    np.savez(path, **good | {"batch_offsets": np.array([0, None])})
    refused(path, "member batch_offsets", "dtype object")


def test_zip_bomb(refused, tmp_path):
    path = tmp_path / "p.npz"
    np.savez_compressed(path, rows=np.zeros(4_000_000, dtype=np.int64))
    assert path.stat().st_size < 100_000
    refused(path, "member rows", "claims 32000128 bytes", "row numbers cannot shrink that much")


def test_encrypted_or_oddly_compressed_npz(refused, tmp_path):
    path = tmp_path / "p.npz"
    make().save(path)
    content = bytearray(path.read_bytes())
    for at in find_all(content, b"PK\x01\x02"):  # the flags of each entry of the directory
        content[at + 8] |= 1
    path.write_bytes(content)
    refused(path, "is encrypted")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("rows.npy", npy_bytes([0, 1]))
    refused(path, "member rows", "write the plan again")


def find_all(content, pattern):
    at = content.find(pattern)
    while at >= 0:
        yield at
        at = content.find(pattern, at + 1)


# --- Parquet ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"row": [0, 1]}, "columns ['row'], expected one column batch and one column row"),
        ({"a": [0, 1], "b": [0, 1]}, "columns ['a', 'b'], expected one column batch"),
        ({"batch": [0, 0], "row": [0, None]}, "column row: got 1 nulls"),
        ({"batch": [None, 0], "row": [0, 1]}, "column batch: got 1 nulls"),
        (
            {"batch": [0, 0], "row": [0.0, 1.0]},
            "column row: got float64 of shape (2,), expected integers",
        ),
        ({"batch": ["a", "a"], "row": [0, 1]}, "column batch: got object of shape"),
        ({"batch": [[0], [0]], "row": [0, 1]}, "column batch: got object of shape"),
        ({"batch": [0, 1, 1, 0], "row": [0, 1, 2, 3]}, "batch 0 starts again at entry 3"),
    ],
)
def test_bad_parquet_columns(refused, tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    refused(tmp_path / "p.parquet", message)


def test_parquet_that_is_none_or_has_bad_metadata(refused, tmp_path):
    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1" * 10)
    refused(path, "cannot be read as Parquet")
    table = pa.table({"batch": [0, 0], "row": [0, 1]})
    pq.write_table(table.replace_schema_metadata({b"batchplan": b"{"}), path)
    refused(path, "metadata is not JSON")
    pq.write_table(table.append_column("row", table["row"]), path)
    refused(path, "columns ['batch', 'row', 'row'], expected one")
    pq.write_table(table.slice(0, 0), path)
    refused(path, "expected integers in one dimension, and at least one")


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["", "x", "1.0", "1 2", "1_0", "1,2", "9" * 20, "9" * 5000, "\x00"]
)
def test_bad_line_of_txt(refused, tmp_path, line):
    (tmp_path / "p.txt").write_text(f"3\n1\n{line}\n0\n")
    refused(tmp_path / "p.txt", "line 3: got", "expected one row number per line", batch_size=2)


@pytest.mark.parametrize(
    "line",
    [
        *("", "x", "3", "{}", "[]", "[1, 2.0]", "[true, 1]", "[1, null]", "[[1]]", "[1] [2]", "[1"),
        *(f"[{'9' * 20}]", f"[{'9' * 5000}]", "[" * 100_000),
    ],
)
def test_bad_line_of_jsonl(refused, tmp_path, line):
    (tmp_path / "p.jsonl").write_text(f"[3, 1]\n{line}\n[0, 2]\n")
    refused(tmp_path / "p.jsonl", "line 2: got", "expected a JSON list of row numbers")


def test_bad_line_far_down(refused, tmp_path):
    lines = [str(n) for n in range(700_000)]
    lines[654_320] = "oops"
    (tmp_path / "p.txt").write_text("\n".join(lines))
    refused(tmp_path / "p.txt", "line 654321: got b'oops'", batch_size=2)
