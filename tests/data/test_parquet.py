"""Parquet files read right, and every way in which one can be wrong, in real files."""

from __future__ import annotations

import base64
import contextlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchplan import InputError, ResourceError
from batchplan.data import load_embeddings, load_labels
from batchplan.data.formats import parquet, tables

from .test_npy import refuse

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 4)).astype(np.float32)
Y = RNG.standard_normal((20, 4)).astype(np.float32)


def fixed(array: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def ragged(array: np.ndarray, large: bool = False) -> pa.Array:
    offsets = np.arange(0, array.size + 1, array.shape[1], np.int64 if large else np.int32)
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets), pa.array(array.ravel()))


FORMS = {
    "fixed": fixed,
    "list": ragged,
    "large": lambda array: ragged(array, large=True),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.parquet"


def write(path, row_group_size=7, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_list_type_and_float(path, form, dtype):
    x, y = X.astype(dtype), Y.astype(dtype)
    write(path, x=FORMS[form](x), n=np.arange(20), y=FORMS[form](y))
    loaded = load_embeddings(path)
    kept = np.float32 if dtype is np.float64 else dtype
    assert (loaded.x.dtype, loaded.y.dtype, loaded.paired) == (kept, kept, True)
    np.testing.assert_array_equal(loaded.x.rows(0, 20), x.astype(kept))
    np.testing.assert_array_equal(loaded.y.rows(0, 20), y.astype(kept))
    assert loaded.fingerprint == load_embeddings(x.astype(kept), y.astype(kept)).fingerprint


@pytest.mark.parametrize("size", [503316486, -2147483642])
def test_a_type_that_states_another_length_than_its_lists_have(path, size):
    """Damage of the Arrow schema, which a file holds beside its own: no memory for such rows is
    asked for."""
    dim = 1077  # its bytes are there once
    write(path, x=fixed(np.ones((3, dim), np.float32)))
    schema = pq.read_metadata(path).metadata[b"ARROW:schema"]
    stated, damaged = (number.to_bytes(4, "little", signed=True) for number in (dim, size))
    lying = base64.b64encode(base64.b64decode(schema).replace(stated, damaged))
    path.write_bytes(path.read_bytes().replace(schema, lying))
    assert pq.read_schema(path).field("x").type.list_size == size
    refuse(path, "cannot be read as Parquet", "the file is damaged")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.lists(st.integers(0, 19), max_size=3),
    st.integers(1, 25),
    st.sampled_from(sorted(FORMS)),
    st.integers(1, 400),
)
def test_any_sharding_row_groups_and_batches(tmp_path_factory, cuts, group, form, block):
    folder = tmp_path_factory.mktemp("shards")
    bounds = [0, *sorted(set(cuts) - {0}), 20]
    for number, (a, b) in enumerate(pairwise(bounds)):
        columns = {"x": FORMS[form](X[a:b]), "y": FORMS[form](Y[a:b]), "id": np.arange(a, b)}
        write(folder / f"{number}.parquet", group, **columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_BYTES", block)
        loaded = load_embeddings(folder)
    np.testing.assert_array_equal(loaded.x.rows(0, 20), X)
    np.testing.assert_array_equal(loaded.y.rows(0, 20), Y)
    assert loaded.ids.to_pylist() == list(range(20))
    assert loaded.fingerprint == load_embeddings(X, Y).fingerprint
    oracle = pq.read_table(folder / "0.parquet")["x"].to_pylist()
    np.testing.assert_array_equal(loaded.x.rows(0, len(oracle)), np.array(oracle, np.float32))


def test_columns_are_read_by_their_names(tmp_path):
    write(tmp_path / "0.parquet", x=fixed(X), y=fixed(Y), id=range(20))
    write(tmp_path / "1.parquet", id=range(20, 40), y=fixed(Y), x=fixed(X))
    loaded = load_embeddings(tmp_path)
    np.testing.assert_array_equal(loaded.x.rows(0, 40), np.concatenate([X, X]))
    np.testing.assert_array_equal(loaded.y.rows(0, 40), np.concatenate([Y, Y]))
    assert loaded.ids.to_pylist() == list(range(40))


def test_one_vector_column_is_one_matrix(path):
    loaded = load_embeddings(write(path, text=pa.array(["a"] * 20), v=fixed(X)))
    assert loaded.y is loaded.x
    assert not loaded.paired
    assert [(s.side, s.rows) for s in loaded.shards] == [("x", 20)]


def test_columns_by_name(path):
    Z = X + Y
    write(path, a=fixed(X), b=fixed(Y), **{"c.d": fixed(Z)})

    def first(**options):
        loaded = load_embeddings(path, **options)
        return loaded.x.rows(0, 1)[0].tolist(), loaded.y.rows(0, 1)[0].tolist(), loaded.paired

    x, y, z = X[0].tolist(), Y[0].tolist(), Z[0].tolist()
    assert first(x_column="c.d", y_column="a") == (z, x, True)
    assert first(x_column="b", y_column="b") == (y, y, False)
    refuse(path, "got 3 vector columns", "'a' fixed", "'c.d' fixed", "x_column (--x-column)")
    refuse(path, "got 3 vector columns", x_column="a")
    write(path, a=fixed(X), b=fixed(Y))
    assert first() == (x, y, True)
    assert first(x_column="b") == (y, x, True)
    assert first(y_column="a") == (y, x, True)


def test_column_refusals(path):
    write(path, v=fixed(X), n=np.arange(20), t=pa.array([[1, 2]] * 20))
    refuse(
        path, "'w' is none of the vector columns", "'v' fixed_size_list", "'n' int64", x_column="w"
    )
    refuse(path, "'t' is none of the vector columns", "'t' list<element: int64>", x_column="t")
    refuse(path, "got 1 vector columns", "expected 2 because y_column is set", y_column="v")
    write(path, n=np.arange(20))
    refuse(path, "got 0 vector columns", "'n' int64")
    table = pa.table([fixed(X), fixed(Y)], names=["v", "v"])
    pq.write_table(table, path)
    refuse(path, "there are 2 of that name")


def test_a_pair_of_files(tmp_path, path):
    other = write(tmp_path / "b.parquet", w=ragged(Y))
    loaded = load_embeddings(write(path, v=fixed(X)), other)
    assert loaded.fingerprint == load_embeddings(X, Y).fingerprint
    assert [s.side for s in loaded.shards] == ["x", "y"]
    np.save(tmp_path / "y.npy", Y)
    assert load_embeddings(path, tmp_path / "y.npy").fingerprint == loaded.fingerprint
    np.save(tmp_path / "x.npy", X)
    assert load_embeddings(tmp_path / "x.npy", other).fingerprint == loaded.fingerprint


def test_a_pair_beside_two_columns(tmp_path, path):
    write(path, a=fixed(X), b=fixed(Y))
    other = write(tmp_path / "b.parquet", w=fixed(Y))
    refuse(path, "2 vector columns", "a pair is set", "x_column", pair=other)
    with pytest.raises(InputError, match=r"b\.parquet: 'v' is none of"):
        load_embeddings(path, other, x_column="a", y_column="v")
    loaded = load_embeddings(path, other, x_column="a")
    assert loaded.fingerprint == load_embeddings(X, Y).fingerprint
    with pytest.raises(InputError, match=r"a\.parquet: got 2 vector .* expected 1 for side y;"):
        load_embeddings(other, path)
    assert load_embeddings(other, path, y_column="a").paired


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 13])
def test_null_rows(path, form, at):
    array = FORMS[form](X)
    mask = np.arange(20) == at
    broken = pa.array([None if m else row for m, row in zip(mask, array.to_pylist(), strict=True)])
    write(path, v=broken.cast(array.type))
    # Of lists of a fixed size, pyarrow before 26 does not let one know which is null.
    known = form != "fixed" or int(pa.__version__.partition(".")[0]) >= 26
    where = (f"row {at}", "column 'v'") if known else ("fill or drop the row",)
    refuse(path, *where, "got null, expected a vector")


@pytest.mark.parametrize("form", FORMS)
def test_null_elements(path, form):
    rows = X.tolist()
    rows[13][2] = rows[15][0] = None
    write(path, v=pa.array(rows, FORMS[form](X).type))
    refuse(path, "row 13", "column 'v'", "null as element 2")


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_ragged_lists(path, kind):
    rows = X.tolist()
    rows[13] = rows[13][:3]
    write(path, v=pa.array(rows, kind(pa.float32())))
    refuse(path, "row 13", "list of 3 values, expected 4")
    rows[13] = []
    write(path, v=pa.array(rows, kind(pa.float32())))
    refuse(path, "row 13", "list of 0 values, expected 4")
    write(path, v=pa.array([[]] * 20, kind(pa.float32())))
    refuse(path, "lists of 0 values", "at least 1 dimension")


def test_nan_is_placed_in_its_shard(tmp_path):
    bad = X.copy()
    bad[5] = np.nan
    write(tmp_path / "0.parquet", v=fixed(X))
    write(tmp_path / "1.parquet", v=fixed(bad))
    refuse(tmp_path, "4 NaN or Inf values in 1 rows", f"{tmp_path}/1.parquet row 5")


def test_an_overflow_of_float64(path):
    big = X.astype(np.float64)
    big[13, 1] = 1e300
    write(path, v=fixed(big))
    refuse(path, "row 13", "float32 can hold")


def test_shards_must_be_alike(tmp_path):
    write(tmp_path / "0.parquet", v=fixed(X), id=np.arange(20))
    for columns, part in (
        ({"v": fixed(X[:, :3]), "id": np.arange(20)}, "'v' of 3 dimensions of float32"),
        ({"v": fixed(X.astype(np.float16)), "id": np.arange(20)}, "of float16"),
        ({"v": fixed(X), "id": np.arange(20).astype(str)}, "ids of large_string"),
        ({"w": fixed(X), "id": np.arange(20)}, "column 'v': there is no such column"),
        ({"v": np.arange(20), "id": np.arange(20)}, "got int64"),
        ({"v": fixed(X)}, "column 'id': there is no such column"),
        ({"v": fixed(X), "id": np.ones(20, bool)}, "expected integers or strings"),
    ):
        write(tmp_path / "1.parquet", **columns)
        with pytest.raises(InputError) as error:
            load_embeddings(tmp_path)
        assert f"{tmp_path}/1.parquet" in str(error.value)
        assert part in str(error.value)


def test_files_without_rows_may_lack_types(tmp_path):
    for side in "xy":
        (tmp_path / side).mkdir()
        pq.write_table(
            pa.table({"v": pa.nulls(0), "id": pa.nulls(0)}), tmp_path / side / "0.parquet"
        )
        write(tmp_path / side / "1.parquet", v=fixed(X), id=np.arange(20))
    data = load_embeddings(tmp_path / "x", tmp_path / "y")
    assert data.ids.to_pylist() == list(range(20))
    assert load_labels("id", data).tolist() == list(range(20))


def test_no_rows(path, tmp_path):
    write(path, v=fixed(X).slice(0, 0))
    refuse(path, "got 0 rows, expected at least 1")
    write(path, v=fixed(X[:1]))
    with pytest.raises(InputError, match="x: got 1 rows, expected at least 2"):
        load_embeddings(path)


def test_empty_or_other_files(path):
    path.write_bytes(b"")
    refuse(path, "empty file (0 bytes)")
    path.write_text("id,vector\n1,0.5\n" * 10)
    refuse(path, "cannot be read as Parquet")
    np.save(path.with_suffix(".npy"), X)
    path.with_suffix(".npy").rename(path)
    refuse(path, "got NPY, expected Parquet; name it .npy")


def test_truncated_files(path):
    write(path, v=fixed(X), id=np.arange(20))
    data = path.read_bytes()
    for length in range(1, len(data), 23):
        path.write_bytes(data[:length])
        refuse(path, "cannot be read as Parquet")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.data())
def test_damaged_bytes_never_leak_an_exception(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "a.parquet"
    table = pa.table({"v": ragged(X), "id": np.arange(20).astype(str)})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True, row_group_size=7)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with contextlib.suppress(InputError, ResourceError):
        assert load_embeddings(path, memory=1 << 31).num_rows >= 2


def test_a_damaged_page_is_caught_by_its_checksum(path):
    table = pa.table({"v": fixed(X)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = path.read_bytes()
    at = content.index(X[3].tobytes())
    path.write_bytes(content[:at] + b"\0" + content[at + 1 :])
    refuse(path, "cannot be read as Parquet", "CRC")


def test_memory_is_checked_before_anything_is_decoded(path, monkeypatch):
    write(path, v=fixed(X))
    monkeypatch.setattr(tables, "matrix_of", lambda *_: pytest.fail("was decoded"))
    with pytest.raises(ResourceError, match=r"need .* of memory and 0 B is left; raise --memory"):
        load_embeddings(path, memory=1)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(range(5, 25), pa.int32()),
        pa.array(range(2**64 - 20, 2**64), pa.uint64()),
        pa.array([f"é{i}" for i in range(20)]),
        pa.array([f"r{i}" for i in range(20)], pa.large_string()),
        pa.array([f"r{i}" for i in range(20)]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type)[:12],
)
def test_ids_of_integers_and_strings(path, ids):
    write(path, v=fixed(X), id=ids)
    loaded = load_embeddings(path)
    assert isinstance(loaded.ids, pa.Array)
    assert loaded.ids.to_pylist() == ids.to_pylist()
    assert load_embeddings(path, id_column="").ids is None


def test_id_column_by_name(path):
    write(path, v=fixed(X), id=np.zeros(20, np.int64), key=np.arange(20), f=np.ones(20, bool))
    assert load_embeddings(path, id_column="key").ids.to_pylist() == list(range(20))
    refuse(path, "column 'f': got bool", "integers or strings", id_column="f")
    refuse(path, "column 'g'", "no such column", "'key' int64", id_column="g")


def test_an_id_column_of_another_type_is_no_id_column(path):
    assert load_embeddings(write(path, v=fixed(X), id=np.ones(20, bool))).ids is None


def test_null_and_duplicate_ids(tmp_path):
    write(tmp_path / "0.parquet", v=fixed(X), id=np.arange(20))
    write(tmp_path / "1.parquet", v=fixed(X), id=np.arange(17, 37))
    first, second = f"{tmp_path}/0.parquet row 17", f"{tmp_path}/1.parquet row 0"
    refuse(tmp_path, f"3 duplicate ids, first 17 at {first} and {second}", "--id-column")
    write(tmp_path / "1.parquet", v=fixed(X), id=pa.array([None, *range(30, 48), None]))
    refuse(tmp_path, f"2 null ids, first at {second}")


def test_different_texts_of_a_row_group_are_read_in_parts(tmp_path):
    """Arrow would keep all of them in the dictionary that it began with the first ones."""
    path, texts = tmp_path / "a.parquet", [f"{row:x<4096}" for row in range(20_000)]
    pq.write_table(pa.table({"text": texts}), path, compression="zstd")
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    with parquet.FORMAT.opened(path) as file:
        for (column,) in file.columns(["text"], 1000):
            assert column[0].as_py() == texts[rows]
            rows += len(column)
            most = max(most, pa.total_allocated_bytes() - before)
    assert rows == len(texts)
    assert most < 40e6
