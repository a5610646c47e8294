"""One matrix that was meant as pairs makes a plan of twice the rows, so it is asked for."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.data import load_embeddings
from batchplan.errors import InputError

ROWS = np.random.default_rng(0).standard_normal((6, 4), np.float32)
MEND = "name the files of the other side as the pair (--pair), or pass single=True (--single)"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x.npy", "y.npy"):
        np.save(name, ROWS)
    for name in ("x.parquet", "y.parquet"):
        pq.write_table(pa.table({"v": pa.array(list(ROWS))}), name)
    pq.write_table(pa.table({"x": pa.array(list(ROWS)), "y": pa.array(list(ROWS))}), "xy.parquet")


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_two_paths_of_one_matrix_are_refused(suffix):
    names = [f"x.{suffix}", f"y.{suffix}"]
    with pytest.raises(InputError) as error:
        load_embeddings(names)
    assert str(error.value) == (
        f"x.{suffix}, y.{suffix}: got 2 paths of one matrix, whose rows would be their own "
        f"positives, expected pairs; {MEND} if they are shards of one matrix"
    )
    assert not load_embeddings(names, single=True).paired
    assert load_embeddings(names, single=True).num_rows == 12
    assert load_embeddings(names[:1], names[1:]).paired


@pytest.mark.parametrize("paths", ["x.npy", "./x.npy", ["x.npy", "y.npy"], "*.npy"])
def test_the_same_files_for_both_sides_are_refused(paths):
    pair = "x.npy" if paths == "./x.npy" else paths
    with pytest.raises(InputError, match=r"x\.npy: got the same files for both sides, whose rows"):
        load_embeddings(paths, pair)
    assert load_embeddings("x.npy", "y.npy").paired
    assert load_embeddings("xy.parquet", "xy.parquet", x_column="x", y_column="y").paired


@pytest.mark.parametrize("path", ["x.npy", "x.parquet", "*.npy"])
def test_one_path_of_one_matrix_is_told_of(path):
    with pytest.warns(UserWarning, match="one matrix") as told:
        load_embeddings(path)
    (message,) = {str(warning.message) for warning in told}
    assert {warning.filename for warning in told} == {__file__}
    assert message == f"{path}: one matrix, so each row is its own positive; {MEND}"


def test_a_matrix_that_was_asked_for_is_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_embeddings("x.npy", single=True)
        load_embeddings("xy.parquet", x_column="x", y_column="x")
        load_embeddings("x.npy", "y.npy")
        load_embeddings("xy.parquet")


@pytest.mark.parametrize("sides", [("xy.parquet",), ("x.npy", "y.npy")])
def test_pairs_are_no_single_matrix(sides):
    with pytest.raises(InputError, match=r"got two sides of pairs, expected one matrix"):
        load_embeddings(*sides, single=True)
