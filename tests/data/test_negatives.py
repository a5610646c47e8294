"""Mined negatives: from arrays and files, in all shapes, and refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from batchplan import InputError, load_embeddings
from batchplan.data import Embeddings
from batchplan.data.load import open_again
from batchplan.runtime import Runtime

from .writers import safetensors

N, D = 12, 4


@pytest.fixture
def sides():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((N, D)).astype(np.float32) for _ in range(4)]


def values(data):
    return [matrix.rows(0, N) for matrix in data.negatives]


def same(found, expected):
    return all(map(np.array_equal, values(found), expected)) and len(found.negatives) == len(
        expected
    )


def test_arrays(sides):
    x, y, *mined = sides
    expected = Embeddings.from_arrays(x, y, negatives=mined)
    assert same(expected, mined)
    assert expected.missing is None
    for form in (np.stack(mined, axis=1), torch.from_numpy(np.stack(mined, axis=1)), tuple(mined)):
        assert Embeddings.from_arrays(x, y, negatives=form).fingerprint == expected.fingerprint
    one = Embeddings.from_arrays(x, y, negatives=mined[0])
    assert same(one, mined[:1])
    lists = [list(rows) for rows in zip(*mined, strict=True)]
    assert Embeddings.from_arrays(x, y, negatives=lists).fingerprint == expected.fingerprint
    pairs = Embeddings.from_arrays(x, y)
    assert pairs.negatives == ()
    assert len({pairs.fingerprint, one.fingerprint, expected.fingerprint}) == 3


def test_rows_with_fewer_negatives(sides):
    x, y, *mined = sides
    lists = [[column[row] for column in mined[: row % 3]] for row in range(N)]
    lists = [np.array(rows, np.float32).reshape(-1, D) for rows in lists]
    found = Embeddings.from_arrays(x, y, negatives=lists)
    fewer = np.arange(N) % 3
    assert np.array_equal(found.missing, [fewer < 1, fewer < 2])
    for column, original, missing in zip(values(found), mined, found.missing, strict=True):
        assert np.array_equal(column[~missing], original[~missing])
        assert np.array_equal(column[missing], y[missing])  # in its place is the positive
    zeros = [
        np.where(missing[:, None], 0, one)
        for missing, one in zip(found.missing, mined, strict=True)
    ]
    assert Embeddings.from_arrays(x, y, negatives=zeros).fingerprint == found.fingerprint
    found.require_similarities("cosine")
    some = found.take(np.array([4, 5, 6]))
    assert np.array_equal(some.missing, found.missing[:, 4:7])
    assert len(found.by_document()) == 3
    assert np.array_equal(found.by_document()[2].y.rows(0, N), values(found)[1])


def tables(folder, x, y, mined):
    """The same data in files of every kind: paths, and options of `load_embeddings`."""
    for name, side in zip(("x", "y", "n1", "n2"), (x, y, *mined), strict=True):
        np.save(folder / f"{name}.npy", side)
    names = ("anchor", "positive", "negative_1", "negative_2")
    columns = {name: list(side) for name, side in zip(names, (x, y, *mined), strict=True)}
    pq.write_table(
        pa.table({"negative_2": columns.pop("negative_2"), **columns}), folder / "t.parquet"
    )
    pq.write_table(
        pa.table({"negative_1": list(mined[0]), "negative_2": list(mined[1])}), folder / "n.parquet"
    )
    safetensors(folder / "t.safetensors", x, y, *mined, names=names)
    pair = {"pair": folder / "y.npy"}
    yield folder / "t.parquet", {}
    yield folder / "t.safetensors", {}
    yield folder / "x.npy", {**pair, "negatives": [folder / "n1.npy", folder / "n2.npy"]}
    yield folder / "x.npy", {**pair, "negatives": folder / "n.parquet"}
    yield folder / "x.npy", {**pair, "negatives": [folder / "n1.npy", [folder / "n2.npy"]]}


def test_files_of_every_kind_are_the_same_data(sides, tmp_path):
    x, y, *mined = sides
    expected = Embeddings.from_arrays(x, y, negatives=mined)
    for paths, options in tables(tmp_path, x, y, mined):
        found = load_embeddings(paths, **options)
        assert found.fingerprint == expected.fingerprint, paths
        again = Embeddings.gathered(open_again(found.origin), np.arange(N))
        assert again.fingerprint == expected.fingerprint
        none = load_embeddings(paths, **options | {"negatives": "none"})
        assert none.fingerprint == Embeddings.from_arrays(x, y).fingerprint


def test_nulls_are_missing_negatives(sides, tmp_path):
    x, y, mined, _ = sides
    column = [None if row % 2 == 0 else vector for row, vector in enumerate(mined)]
    for kind in (pa.list_(pa.float32()), pa.list_(pa.float32(), D)):
        table = {"anchor": list(x), "positive": list(y), "negative": pa.array(column, kind)}
        pq.write_table(pa.table(table), tmp_path / "t.parquet", row_group_size=5)
        found = load_embeddings(tmp_path / "t.parquet")
        assert np.array_equal(found.missing, [np.arange(N) % 2 == 0])
        assert np.array_equal(values(found)[0][1::2], mined[1::2])


@pytest.mark.parametrize(
    ("negatives", "message"),
    [
        (lambda n: n[:9], "x and negative_1: got 12 and 9 rows"),
        (lambda n: n[:, :3], "x and negative_1: got 4 and 3 dimensions"),
        (lambda n: [n, n[:, :3]], "x and negative_2: got 4 and 3 dimensions"),
        (lambda n: n * np.nan, "negative_1: got 48 NaN or Inf values"),
        (lambda n: [np.empty((0, D))] * N, "negatives: got empty lists for all rows"),
        (lambda n: [n[:2]] * 5 + [n[:1, :3]] * 7, r"negatives of row 5: got shape \(1, 3\)"),
        (lambda n: n[None, None], "negative_1 array: got"),
        (lambda n: "negatives.npy", "negative_1 array: got the text"),
    ],
)
def test_refused_arrays(sides, negatives, message):
    x, y, mined, _ = sides
    with pytest.raises(InputError, match=message):
        Embeddings.from_arrays(x, y, negatives=negatives(mined))


def test_refused_files(sides, tmp_path):
    x, y, *mined = sides
    (parquet, _), *_ = list(tables(tmp_path, x, y, mined))
    pair = {"pair": tmp_path / "y.npy"}
    with pytest.raises(InputError, match="negatives: got an array with paths"):
        load_embeddings(tmp_path / "x.npy", **pair, negatives=mined[0])
    with pytest.raises(InputError, match="no such file"):
        load_embeddings(tmp_path / "x.npy", **pair, negatives="none.npy")
    pq.write_table(pa.table({"a": list(x), "b": list(y)}), tmp_path / "two.parquet")
    with pytest.raises(InputError, match=r"got 2 vector .* expected one, or negative_1"):
        load_embeddings(tmp_path / "x.npy", **pair, negatives=tmp_path / "two.parquet")
    np.save(tmp_path / "few.npy", x[:5])
    with pytest.raises(InputError, match="x and negatives: got 12 and 5 rows"):
        load_embeddings(tmp_path / "x.npy", **pair, negatives=tmp_path / "few.npy")
    lists = pa.array([[], *mined[0][1:].tolist()], pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"x": list(x), "y": list(y), "negative": lists}), tmp_path / "e.parquet"
    )
    with pytest.raises(InputError, match="lists of 0 values"):
        load_embeddings(tmp_path / "e.parquet")
    assert load_embeddings(parquet).negatives


def test_memory_of_the_negatives_counts(sides, tmp_path):
    rng = np.random.default_rng(0)
    names = ("x", "y", "negative_1", "negative_2")
    wide = [rng.standard_normal((2000, 64)).astype(np.float32) for _ in names]
    table = {name: list(side) for name, side in zip(names, wide, strict=True)}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    from batchplan.planners import plan

    data = load_embeddings(tmp_path / "t.parquet")
    assert len(data.matrices) == 4
    assert Runtime("cpu").device == "cpu"
    made = plan(data, planner="random", batch_size=16, refine=1)
    assert made.metadata.metrics["passes"] == 1
