"""Arrow files, streams, and folders that `datasets` saved."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from batchplan.data import load_embeddings, load_labels

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
        refuse(path, "cannot be read as Arrow (the stream ends at byte")


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
