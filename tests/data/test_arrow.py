"""Arrow files, streams, and folders that `datasets` saved."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from batchplan import InputError, plan
from batchplan.data import load_embeddings, load_labels
from batchplan.data.formats.decoding import decoding
from batchplan.data.texts import load_texts
from batchplan.materialize import materialize

from .test_npy import refuse
from .writers import arrow, column

ROWS = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


@pytest.fixture
def saved(tmp_path):
    """A folder as `datasets` saves it; the order of its files is not that of their names."""
    folder = tmp_path / "saved"
    folder.mkdir()
    for name, rows in (("b", ROWS[:8]), ("a", ROWS[8:])):
        arrow(folder / f"{name}.arrow", rows)
    arrow(folder / "cache-1.arrow", ROWS)

    def write(**changes):
        state = {"_data_files": [{"filename": f"{name}.arrow"} for name in "ba"], **changes}
        (folder / "state.json").write_text(json.dumps(state))
        return folder

    write()
    (folder / "dataset_info.json").write_text("{}")
    return write


def test_a_saved_data_set_has_the_files_that_it_names(saved):
    data = load_embeddings(saved())
    np.testing.assert_array_equal(data.x.rows(0, 20), ROWS)
    assert [shard.path.rpartition("/")[2] for shard in data.shards] == ["b.arrow", "a.arrow"]
    (saved() / "a.arrow").unlink()
    refuse(saved(), "a.arrow: no such file")


def test_a_selection_beside_the_files_is_refused(saved):
    folder = saved(_indices_data_files=[{"filename": "indices.arrow"}])
    refuse(folder, "a file of indices selects its rows", "save it again with save_to_disk")
    assert load_embeddings(saved(_indices_data_files=[])).num_rows == 20


@pytest.mark.parametrize(
    "state",
    ["", "[]", "{}", '{"_data_files": []}', '{"_data_files": [{"filename": "../a.arrow"}]}',
     '{"_data_files": [{"filename": 3}]}', '{"_data_files": 3}', "[" * 100],
)  # fmt: skip
def test_states_that_make_no_sense(saved, state):
    folder = saved()
    (folder / "state.json").write_text(state)
    refuse(folder, "state.json: cannot be read", "save the data set again")


def test_splits_and_caches(saved, tmp_path):
    (tmp_path / "dataset_dict.json").write_text("{}")
    refuse(tmp_path, "holds several splits, saved; name one of them")
    folder = saved()
    (folder / "state.json").unlink()
    refuse(folder, "as caches of datasets do", "or name the files")
    assert load_embeddings(f"{folder}/[ab].arrow").num_rows == 20


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_feather_has_ids_and_labels(tmp_path, compression):
    table = pa.table(
        {"text": ["t"] * 20, "v": column(ROWS), "id": range(20), "kind": ["a", "b"] * 10}
    )
    path = tmp_path / "a.arrow"
    pa.feather.write_feather(table, path, compression=compression, chunksize=6)
    data = load_embeddings(path)
    np.testing.assert_array_equal(data.x.rows(0, 20), ROWS)
    assert data.ids.to_pylist() == list(range(20))
    assert load_labels("kind", data).tolist() == [0, 1] * 10


def test_a_stream_that_lost_its_end(tmp_path):
    """Whole batches can be missing, and what is left still be a stream."""
    path = tmp_path / "a.arrow"
    arrow(path, ROWS)
    content = path.read_bytes()
    for wrong in (content[:-8], content + content, content + b"\0" * 8):
        path.write_bytes(wrong)
        refuse(path, "the stream ends at byte")


def test_offsets_that_lie_are_not_followed(tmp_path):
    path = tmp_path / "a.arrow"
    lists = pa.array(ROWS[:3].tolist(), pa.list_(pa.float32()))
    batch = pa.record_batch({"x": lists})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    content = path.read_bytes()
    right = np.array([0, 4, 8, 12], np.int32).tobytes()
    assert content.count(right) == 1
    for wrong in ([0, 4, 8, 1 << 28], [1 << 28, 4, 8, 12], [-4, 0, 4, 8], [8, 12, 16, 20]):
        path.write_bytes(content.replace(right, np.array(wrong, np.int32).tobytes()))
        refuse(path, "cannot be read as Arrow (")


class Vectors(pa.ExtensionType):
    """Vectors as Ray Data has them: lists with a name, known once its package is imported."""

    def __init__(self):
        super().__init__(pa.list_(pa.float32()), "tests.vectors")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


@pytest.fixture
def registered():
    pa.register_extension_type(Vectors())
    yield
    pa.unregister_extension_type("tests.vectors")


def extended(suffix, tmp_path):
    """A file with columns of extension types."""
    vectors = pa.ExtensionArray.from_storage(
        Vectors(), pa.array(ROWS.tolist(), Vectors().storage_type)
    )
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(ROWS[::-1]))
    table = pa.table({"x": vectors, "y": tensors})
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pa.feather.write_feather(table, path)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_extension_types_are_read_by_their_storage(tmp_path, suffix):
    path = extended(suffix, tmp_path)
    assert load_embeddings(path).fingerprint == load_embeddings(ROWS, ROWS[::-1]).fingerprint


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_extension_types_that_are_registered(registered, tmp_path, suffix):
    path = extended(suffix, tmp_path)
    assert load_embeddings(path).fingerprint == load_embeddings(ROWS, ROWS[::-1]).fingerprint
    table = pq.read_table(path) if suffix == ".parquet" else pa.feather.read_table(path)
    assert isinstance(table["x"].type, Vectors)
    both = load_embeddings(table["x"], table["y"])
    assert both.fingerprint == load_embeddings(ROWS, ROWS[::-1]).fingerprint


# pl.DataFrame({"id": pl.Series(["a", "b", "a rather long id"], dtype=pl.Categorical), "x":
#     pl.Series([[1., 2.], [3., 4.], [5., 6.]], dtype=pl.List(pl.Float32))}).write_ipc(path)
# of polars 2.1.0: a dictionary of views with indices of uint32, and views of more than 12 bytes.
POLARS = (
    "c-rk$%}T>S5S}!l1T7M4h3F|qkFj2a9&9P1LZMO$dMMP2#TNXdRPZ2}2k-$r`WPPj2tI<RBH}?rL_~<+Y&K=Pw58zHDU"
    "-?0<eQoOX1j$-rM$OFWD(JO7={_*cLUEEnk5@gi){Ego`7CZ^z9>jHP|ZDh8l|`P#k+j%!l=$F2_tFhth~SG%vnR5z9B"
    "eGbo9lC2;L-^OXHH;U~I+_VIoPdkbwr58|9|nwEibX$cuq$ebC}{{Y65RXBznh^l_h&t0x%b6mrL)^|(wVxhXZRj%w53"
    "#BYc`2s$|+9Knp%tz?d#`;I_VF^CkM-c|D@JZQ!Pv(mFG||O^;DEb%LEMz_YuO9)ok5IulBDsHk~XjT<FzMkpvB|0tN2"
    "W*r1?}C)r%p|!e1oDTNCPxmS7{=ZXOyy@1ec?v}m5wgEFUJXikZtIqB!1ugs0dz9Ml%bKo_a9m#WOOyE=%Uz?w!@obLZ"
    "zM-uTl{MoVUZ*jx9>=<^X2&}@KRfo~(>uK|f28oY54%3#kI!csJy_y@$GvS!BAz9_r}h4p81~2W_`h=|-Z?j@TM$?GFI"
    "&W}uK"
)


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 18, reason="pyarrow casts no views")
def test_categories_as_polars_writes_them(tmp_path):
    path = tmp_path / "a.arrow"
    path.write_bytes(zlib.decompress(base64.b85decode(POLARS)))
    data = load_embeddings(path)
    assert data.ids.to_pylist() == ["a", "b", "a rather long id"]
    assert data.x.rows(0, 3).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert load_labels("id", data).tolist() == [0, 1, 2]
    order = plan(data, planner="random", batch_size=2)
    materialize(order, path, tmp_path / "out")
    (made,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(made)["id"].to_pylist() == data.ids.take(pa.array(order.rows)).to_pylist()
    table = pa.table({"x": column(ROWS[:3]), "t": pa.array(["a", "b", "c" * 20], pa.string_view())})
    pa.feather.write_feather(table, path, compression="uncompressed")
    data = load_embeddings(path, id_column="t")
    assert load_texts("t", data, np.array([2])) == {2: "c" * 20}


def test_the_end_mark_of_old_streams(tmp_path):
    """Before Arrow 0.15, messages and the end mark had no continuation of four bytes."""
    path = tmp_path / "a.arrow"
    table, old = pa.table({"x": column(ROWS)}), pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema, options=old) as w,
    ):
        w.write_table(table, 7)
    content = path.read_bytes()
    assert not content.startswith(b"\xff\xff\xff\xff")
    np.testing.assert_array_equal(load_embeddings(path).x.rows(0, 20), ROWS)
    path.write_bytes(content[:-4])
    refuse(path, "the stream ends at byte")


def test_what_pyarrow_lacks_is_not_called_damaged(tmp_path):
    arrow(tmp_path / "a.arrow", ROWS)
    with (
        pytest.raises(InputError, match=r"a.arrow: cannot be read as Arrow .Unsupp.* lacks this"),
        decoding(tmp_path / "a.arrow", "Arrow"),
    ):
        pa.array([1]).cast(pa.struct([]))
