"""Labels: one code for each value, from the files of the data, a table beside them, or arrays."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError
from batchplan.data import Embeddings, labels_from, load_embeddings, load_labels

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 4)).astype(np.float32)


def vectors():
    return pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 4)


def write(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


VALUES = {
    "text": pa.array(["b", "a", None, "b", "c", "a"]),
    "large text": pa.array(["b", "a", None, "b", "c", "a"], pa.large_string()),
    "integers": pa.array([7, -1, None, 7, 0, -1], pa.int16()),
    "dictionary": pa.array(["b", "a", None, "b", "c", "a"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", VALUES)
def test_codes_in_order_of_first_appearance(tmp_path, kind):
    path = write(tmp_path / "a.parquet", v=vectors(), label=VALUES[kind])
    codes = load_labels("label", load_embeddings(path))
    assert codes.dtype == np.int64
    assert codes.tolist() == [0, 1, -1, 0, 2, 1]
    assert labels_from(VALUES[kind], 6).tolist() == codes.tolist()


def test_values_in_memory():
    assert labels_from([True, False, True], 3).tolist() == [0, 1, 0]
    assert labels_from(np.array(["x", "y", "x"]), 3).tolist() == [0, 1, 0]
    assert labels_from([None, 3], 2).tolist() == [-1, 0]


def test_shards_are_one_column(tmp_path):
    for number, label in enumerate((["a", "b", "a"] * 2, ["c", "b", "d"] * 2)):
        write(tmp_path / f"{number}.parquet", v=vectors(), label=label)
    codes = load_labels("label", load_embeddings(tmp_path))
    assert codes.tolist() == [0, 1, 0, 0, 1, 0, 2, 1, 3, 2, 1, 3]
    write(tmp_path / "1.parquet", v=vectors(), label=range(6))
    with pytest.raises(InputError, match=r"1\.parquet column 'label': got int64, expected large_"):
        load_labels("label", load_embeddings(tmp_path))


def test_the_side_that_has_the_column(tmp_path):
    one = write(tmp_path / "x.parquet", v=vectors(), a=list("uvuvuv"))
    two = write(tmp_path / "y.parquet", v=vectors(), a=list("uvwxyz"), b=list("uuuuuv"))
    pair = load_embeddings(one, two)
    assert load_labels("a", pair).tolist() == [0, 1, 0, 1, 0, 1]
    assert load_labels("b", pair).tolist() == [0, 0, 0, 0, 0, 1]
    np.save(tmp_path / "x.npy", X)
    mixed = load_embeddings(tmp_path / "x.npy", two)
    assert load_labels("b", mixed).tolist() == [0, 0, 0, 0, 0, 1]


def test_a_table_beside_arrays(tmp_path):
    table = write(tmp_path / "rows.parquet", label=list("abcabc"))
    embeddings = Embeddings.from_arrays(X)
    assert load_labels("label", embeddings, table).tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.raises(InputError, match=r"hold no columns.*--label-table"):
        load_labels("label", embeddings)


def test_refusals(tmp_path):
    path = write(tmp_path / "a.parquet", v=vectors(), f=np.ones(6), n=range(6))
    data = load_embeddings(path)
    for column, says in (("w", "no such column"), ("f", "got double"), ("v", "expected integers")):
        with pytest.raises(InputError, match=says) as error:
            load_labels(column, data)
        assert str(path) in str(error.value)
    with pytest.raises(InputError, match="'n' int64"):
        load_labels("w", data)
    short = write(tmp_path / "short.parquet", label=list("abc"))
    with pytest.raises(
        InputError, match=r"short\.parquet column 'label': got 3 values, expected 6"
    ):
        load_labels("label", data, short)
    with pytest.raises(InputError, match="no such file"):
        load_labels("label", data, tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        load_labels("label", data, tmp_path / "bad.parquet")
    for values in ([0.5] * 6, object(), [b"a"] * 6):
        with pytest.raises(InputError, match="expected integers, strings or booleans"):
            labels_from(values, 6)
