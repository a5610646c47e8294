"""`load_embeddings` and `Embeddings` as a whole: sample data, arrays, pairs, progress."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from batchplan import InputError
from batchplan.data import Embeddings, Shard, load_embeddings
from tests.observing import Observer

SAMPLE = Path(__file__).parents[2] / "sample_data"
X = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)


def test_sample_data_is_the_same_in_both_formats():
    one = load_embeddings(SAMPLE / "pairs.parquet")
    two = load_embeddings(SAMPLE / "docstring", SAMPLE / "code")
    assert one.fingerprint == two.fingerprint
    assert (one.num_rows, one.dim, one.paired) == (2048, 384, True)
    assert one.x.dtype == one.y.dtype == np.float16
    assert one.shards == (Shard(str(SAMPLE / "pairs.parquet"), "xy", 2048),)
    assert [(s.side, s.rows) for s in two.shards] == [
        ("x", 1000), ("x", 500), ("x", 548), ("y", 300), ("y", 800), ("y", 948)
    ]  # fmt: skip
    assert two.ids is None
    assert len(one.ids) == 2048
    one.require_similarities("cosine")


def test_sample_data_against_numpy_and_pyarrow():
    loaded = load_embeddings(SAMPLE / "docstring/*.npy", SAMPLE / "code/*.npy")
    table = pq.read_table(SAMPLE / "pairs.parquet")
    for matrix, name in ((loaded.x, "docstring"), (loaded.y, "code")):
        oracle = np.concatenate([np.load(SAMPLE / name / f"{i}.npy") for i in range(3)])
        np.testing.assert_array_equal(matrix.rows(0, 2048), oracle)
        arrow = table[name].combine_chunks().flatten().to_numpy().reshape(2048, 384)
        np.testing.assert_array_equal(arrow, oracle)
    assert table.schema.field("id").type == table.schema.field("group").type == pa.int64()
    assert table.schema.field("source").type == pa.int32()


def test_sample_pairs_are_pairs():
    """Row i of x is closer to row i of y than to a random one, nearly always."""
    loaded = load_embeddings(SAMPLE / "pairs.parquet")
    x, y = (side.rows(0, 2048).astype(np.float32) for side in (loaded.x, loaded.y))
    positive = (x * y).sum(axis=1)
    assert (positive > (x * np.roll(y, 1, axis=0)).sum(axis=1)).mean() > 0.95


def test_working_directory_and_processes_do_not_matter():
    script = "import batchplan; print(batchplan.load_embeddings('pairs.parquet').fingerprint)"
    environment = {**os.environ, "PYTHONPATH": str(SAMPLE.parent), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=SAMPLE, env=environment, capture_output=True, text=True
    )
    assert found.stdout.strip() == load_embeddings(SAMPLE / "pairs.parquet").fingerprint


def test_npy_needs_neither_pyarrow_nor_torch():
    script = (
        "import sys, batchplan.data as d; d.load_embeddings('docstring', 'code');"
        "print(sorted({'pyarrow', 'torch', 'numba', 'scipy'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SAMPLE.parent)}
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=SAMPLE, env=environment, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]", found.stderr


def test_sides_of_different_size(tmp_path):
    np.save(tmp_path / "x.npy", X)
    for other, message in (
        (X[:-1], "x and y: got 12 and 11 rows, expected the same"),
        (X[:, :2], "x and y: got 3 and 2 dimensions, expected the same"),
    ):
        np.save(tmp_path / "y.npy", other)
        with pytest.raises(InputError, match=message):
            load_embeddings(tmp_path / "x.npy", tmp_path / "y.npy")
        with pytest.raises(InputError, match=message):
            Embeddings.from_arrays(X, other)


def test_a_pair_may_differ_in_dtype():
    loaded = Embeddings.from_arrays(X, X.astype(np.float16))
    assert (loaded.x.dtype, loaded.y.dtype) == (np.float32, np.float16)


@pytest.mark.parametrize("option", ["x_column", "y_column", "id_column"])
def test_columns_of_what_has_none(tmp_path, option):
    np.save(tmp_path / "x.npy", X)
    for paths, where in ((tmp_path / "x.npy", "x.npy"), (X, "arrays")):
        with pytest.raises(InputError, match=rf"{where}: got {option}, but arrays have no columns"):
            load_embeddings(paths, **{option: "v"})


@pytest.mark.parametrize("given", [(None,), (3,), ("sample_data/docstring", 5)])
def test_what_is_no_path(given):
    with pytest.raises(InputError, match="expected paths, or one array per side"):
        load_embeddings(*given)


def test_an_array_and_a_path():
    for given in ((X, SAMPLE), (SAMPLE, X)):
        with pytest.raises(InputError, match="expected two arrays or two paths"):
            load_embeddings(*given)


def test_arrays_are_used_in_place():
    loaded = load_embeddings(X, X + 1)
    assert np.shares_memory(loaded.x.rows(0, 12), X)
    assert X.flags.writeable
    assert loaded.shards == (Shard("x array", "x", 12), Shard("y array", "y", 12))
    single = load_embeddings(X)
    assert single.y is single.x
    assert not single.paired


@pytest.mark.parametrize(
    "array",
    [np.asfortranarray(X), X.astype(">f4"), np.repeat(X, 2, axis=0)[::2], torch.from_numpy(X)],
    ids=["fortran", "big-endian", "strided", "torch"],
)
def test_other_arrays_of_the_same_values(array):
    loaded = Embeddings.from_arrays(array)
    assert loaded.fingerprint == Embeddings.from_arrays(X).fingerprint
    np.testing.assert_array_equal(loaded.x.rows(0, 12), X)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(4, np.float32), r"1 dimensions, shape \(4,\), expected 2"),
        (np.ones((2, 2, 2), np.float32), "3 dimensions"),
        (np.ones((4, 0), np.float32), "at least 1 dimension"),
        (np.ones((0, 4), np.float32), "got 0 rows, expected at least 2"),
        (np.ones((1, 4), np.float32), "got 1 rows, expected at least 2"),
        (np.ones((4, 4), int), "dtype int64"),
        (np.array([[None, 1]]), "dtype object"),
        ([[1.0, 2.0], [3.0]], "is not an array"),
        (torch.ones((4, 4)).to_sparse(), "is not an array"),
        (torch.ones((4, 4), device="meta"), "is not an array"),
        (torch.ones((4, 4), dtype=torch.int32), r"dtype int32 \(integers\)"),
        (np.ma.masked_less(X, 0), "masked array"),
        (np.full((4, 4), np.nan, np.float16), "16 NaN or Inf values in 4 rows"),
    ],
)
def test_arrays_refused(array, message):
    with pytest.raises(InputError, match=message) as error:
        Embeddings.from_arrays(array)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"^(y array|y|x and y): "):
        Embeddings.from_arrays(X, array)


def test_float64_arrays_are_rounded():
    double = X.astype(np.float64)
    assert load_embeddings(double).fingerprint == load_embeddings(X).fingerprint
    double[4, 1] = 1e40
    with pytest.raises(
        InputError, match=r"\(x array row 4\), expected finite numbers that float32"
    ):
        Embeddings.from_arrays(double)


def test_ids_of_arrays():
    for ids in (range(12), np.arange(12), pa.array(range(12))):
        assert Embeddings.from_arrays(X, ids=ids).ids.to_pylist() == list(range(12))
    names = [f"r{i}" for i in range(12)]
    for ids in (names, np.array(names), pa.array(names)):
        assert Embeddings.from_arrays(X, ids=ids).ids.to_pylist() == names
    for ids, message in (
        (range(11), "got 11 ids, expected 12"),
        ([1] * 12, r"11 duplicate ids, first 1 at row 0 and row 1"),
        ([None, *range(11)], "1 null ids, first at row 0"),
        (np.arange(12) / 2, "got double such as 0.5 at row 1, expected whole numbers"),
        (np.ones(12, bool), "got bool"),
        ([1, "a"] * 6, "expected an array of integers or strings"),
        (3, "expected an array of integers or strings"),
    ):
        with pytest.raises(InputError, match=f"ids: .*{message}"):
            Embeddings.from_arrays(X, ids=ids)


def test_zero_rows_matter_only_where_asked(tmp_path):
    bad = X.copy()
    bad[[3, 9]] = 0
    np.save(tmp_path / "0.npy", bad[:6])
    np.save(tmp_path / "1.npy", bad[6:])
    load_embeddings(X).require_similarities("cosine")
    with pytest.raises(InputError) as error:
        load_embeddings(tmp_path).require_similarities("cosine")
    places = f"{tmp_path}/0.npy row 3, {tmp_path}/1.npy row 3"
    assert f"x: got 2 rows of zeros ({places}), for which" in str(error.value)
    with pytest.raises(InputError, match="y: got 2 rows of zeros"):
        Embeddings.from_arrays(X, bad).require_similarities("cosine")


@pytest.mark.parametrize(
    ("given", "total"),
    # Mapped rows are passed once, decoded ones once more.
    [(("docstring", "code"), 4096), (("pairs.parquet",), 6144), (("docstring", "code/1.npy"), 0)],
)
def test_progress_reaches_its_total(given, total):
    observer = Observer()
    paths = [SAMPLE / name for name in given]
    if total:
        load_embeddings(*paths, observer=observer)
        assert observer.begun == list(observer.seconds) == ["read"]
        assert observer.done == observer.totals == {"read": total}
    else:
        with pytest.raises(InputError):
            load_embeddings(*paths, observer=observer)
        assert observer.begun == []
