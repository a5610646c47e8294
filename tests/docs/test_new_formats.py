"""The format that docs/extending.md shows works: one file and one line in a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc as orc_files
from typer.testing import CliRunner

import batchplan
from batchplan import InputError, ResourceError, load_embeddings
from batchplan.cli.app import app
from batchplan.data import load_labels
from batchplan.files.inputs import INPUT_FORMATS

from .blocks import ROOT, add_module, blocks_under

PAGE = ROOT / "docs" / "extending.md"
ROWS = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


@pytest.fixture
def added(tmp_path_factory, monkeypatch):
    """The page's file and line, as an author would add them."""
    source, line = blocks_under(PAGE, "Input format")
    ((suffix, name),) = eval(f"{{{line.text}}}").items()
    assert name.rpartition(".")[2] == suffix[1:]
    add_module(name, source.text, tmp_path_factory.mktemp("added"), monkeypatch)
    monkeypatch.setitem(INPUT_FORMATS, suffix, name)


@pytest.fixture
def orc(tmp_path):
    """Writes an ORC file of both sides, ids and labels."""

    def write(name="a.orc", rows=ROWS, **changes):
        vectors = pa.array(rows.tolist(), pa.list_(pa.float32()))
        columns = {"x": vectors, "y": vectors, "id": np.arange(len(rows)), **changes}
        orc_files.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return write


def fails(say, *paths, **options):
    with pytest.raises(InputError, match=say) as error:
        load_embeddings(*paths, **options)
    assert "\n" not in str(error.value)


def test_a_table_has_sides_ids_and_labels(added, orc):
    path = orc(kind=["a", "b"] * 10)
    data = load_embeddings(path)
    assert np.array_equal(data.x.rows(0, 20), ROWS)
    assert data.paired
    assert data.ids.to_pylist() == list(range(20))
    assert load_labels("kind", data).tolist() == [0, 1] * 10
    assert load_embeddings(path, x_column="x", y_column="x").fingerprint == (
        batchplan.Embeddings.from_arrays(ROWS).fingerprint
    )


def test_a_table_is_refused_like_parquet(added, orc, tmp_path):
    fails("duplicate ids, first 3", orc(id=[3] * 20))
    fails("is none of the vector columns", orc(), x_column="w")
    with_null = orc(x=pa.array([[1.0], None] * 10, pa.list_(pa.float32())))
    fails("row 1, column 'x': got null", with_null, x_column="x", y_column="x")
    fails("got 0 rows", orc(rows=ROWS[:0], id=pa.array([], pa.int64())))
    (tmp_path / "bad.orc").write_bytes(b"no ORC file" * 9)
    fails("cannot be read as ORC", tmp_path / "bad.orc")
    (tmp_path / "none.orc").touch()
    fails(r"empty file \(0 bytes\), expected ORC", tmp_path / "none.orc")
    with pytest.raises(ResourceError, match="the embeddings need"):
        load_embeddings(orc(), memory=1)


def test_folders_and_globs_find_them(added, orc, tmp_path):
    for number in (10, 2, 1):
        orc(f"{number}.orc", rows=ROWS + number, id=np.arange(20) + 20 * number)
    for given in (tmp_path, tmp_path / "*.orc"):
        shards = load_embeddings(given, shard_order="natural").shards
        assert [shard.path.rpartition("/")[2] for shard in shards] == [
            "1.orc",
            "2.orc",
            "10.orc",
        ]
    fails(r"expected \.npy, .* or \.orc", __file__)


def test_no_output_over_an_input(added, orc, tmp_path):
    path = orc()
    (tmp_path / "link.txt").symlink_to(path)
    for output in (tmp_path / "link.txt", tmp_path / "other.parquet"):
        given = path if output.suffix == ".txt" else tmp_path
        arguments = ["random", str(given), "-o", str(output), "--force", "-q"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 3
        assert "would overwrite or join the input" in result.output
    assert load_embeddings(path).num_rows == 20
