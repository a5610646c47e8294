"""The formats that docs/extending.md shows work: one file and one line in a table each."""

from __future__ import annotations

import importlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc as orc_files
from typer.testing import CliRunner

import batchplan
from batchplan import InputError, OutputError, ResourceError, load_embeddings
from batchplan.cli.app import app
from batchplan.data import load_labels
from batchplan.files.inputs import INPUT_FORMATS
from batchplan.plans import Batching, Plan, is_plan
from batchplan.plans.formats import FORMATS

from .blocks import ROOT, add_module, blocks_under

PAGE = ROOT / "docs" / "extending.md"
ROWS = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


@pytest.fixture
def added(tmp_path_factory, monkeypatch):
    """The page's files and lines, as an author would add them."""
    for heading, table in (("Input format", INPUT_FORMATS), ("Plan format", FORMATS)):
        blocks = blocks_under(PAGE, heading)
        sources = [block.text for block in blocks if block.language == "python"]
        (lines,) = (block.text for block in blocks if block.language == "text")
        for source, (suffix, name) in zip(sources, eval(f"{{{lines}}}").items(), strict=True):
            assert name.rpartition(".")[2] == suffix[1:]
            add_module(name, source, tmp_path_factory.mktemp("added"), monkeypatch)
            monkeypatch.setitem(table, suffix, name)


@pytest.fixture
def orc(tmp_path):
    """Writes an ORC file of both sides, ids and labels."""

    def write(name="a.orc", rows=ROWS, **changes):
        vectors = pa.array(rows.tolist(), pa.list_(pa.float32()))
        columns = {"x": vectors, "y": vectors, "id": np.arange(len(rows)), **changes}
        orc_files.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return write


@pytest.fixture
def vec(tmp_path):
    def write(name="a.vec", rows=ROWS, header=None):
        header = np.array(header or rows.shape, "<u4")
        (tmp_path / name).write_bytes(b"VEC1" + header.tobytes() + rows.tobytes())
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


def test_an_array_is_mapped(added, vec):
    data = load_embeddings(vec(), vec("b.vec", rows=ROWS * 2))
    base = data.y.rows(0, 20)
    assert np.array_equal(base, ROWS * 2)
    while not isinstance(base, np.memmap):
        base = base.base


def test_an_array_is_refused_like_npy(added, vec, tmp_path):
    fails(
        r"got 332 bytes, expected 348 for the header's shape \(21, 4\).*cut short",
        vec(header=(21, 4)),
    )
    fails("too long", vec(header=(19, 4)))
    fails("at least 1 row", vec(rows=ROWS[:0]))
    fails("arrays have no columns", vec(), x_column="x")
    (tmp_path / "a.vec").write_bytes(b"\0\0\0")
    fails("header that cannot be read as vec", tmp_path / "a.vec")
    vec(rows=np.full((20, 4), np.nan, np.float32))
    fails("80 NaN or Inf values", tmp_path / "a.vec")
    (tmp_path / "c.vec").mkdir()
    fails("no .npy, .parquet, .* file there", tmp_path / "c.vec")


def test_folders_and_globs_find_them(added, vec, tmp_path):
    for number in (10, 2, 1):
        vec(f"{number}.vec", rows=ROWS + number)
    for given in (tmp_path, tmp_path / "*.vec"):
        shards = load_embeddings(given).shards
        assert [shard.path.rpartition("/")[2] for shard in shards] == [
            "1.vec",
            "2.vec",
            "10.vec",
        ]
    fails(r"expected \.npy, .*, \.orc or \.vec", __file__)


def test_no_output_over_an_input(added, orc, tmp_path):
    path = orc()
    (tmp_path / "link.csv").symlink_to(path)
    for output in (tmp_path / "link.csv", tmp_path / "other.parquet"):
        given = path if output.suffix == ".csv" else tmp_path
        arguments = ["random", str(given), "-o", str(output), "--force", "-q"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 3
        assert "would overwrite or join the input" in result.output
    assert load_embeddings(path).num_rows == 20


@pytest.fixture
def plan():
    order = np.random.default_rng(1).permutation(20)
    return Plan.cut(order, Batching(6), num_rows=20, planner="p", seed=3)


def test_a_plan_is_saved_and_loaded(added, plan, tmp_path):
    path = tmp_path / "plan.csv"
    plan.save(path, ids=np.arange(20))
    lines = path.read_text().splitlines()
    assert [[int(row) for row in line.split(",")] for line in lines] == [
        batch.tolist() for batch in plan.batches()
    ]
    loaded = Plan.load(path)
    assert np.array_equal(loaded.rows, plan.rows)
    assert np.array_equal(loaded.batch_offsets, plan.batch_offsets)
    assert loaded.metadata == plan.metadata
    assert is_plan(path)
    (tmp_path / "plan.csv.json").unlink()
    assert Plan.load(path).metadata.partitions_rows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("1,2\n3,x\n", "line 2: got b'3,x.n'.*correct or remove"),
        ("1,2\n3,99999999999999999999\n", "line 2"),
        ("0,1\n0,0\n", "repeated within a batch"),
        ("0,1\n-2,3\n", "outside 0 to 3"),
    ],
)
def test_a_bad_plan_is_refused(added, tmp_path, text, says):
    (tmp_path / "plan.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        Plan.load(tmp_path / "plan.csv")


def test_an_edited_plan_is_refused(added, plan, tmp_path):
    path = tmp_path / "plan.csv"
    plan.save(path)
    first, _, rest = path.read_text().partition("\n")
    path.write_text(f"{','.join(reversed(first.split(',')))}\n{rest}")
    with pytest.raises(InputError, match="belong to other rows or batches"):
        Plan.load(path)


def test_a_plan_appears_in_full_or_not_at_all(added, plan, tmp_path, monkeypatch):
    path = tmp_path / "plan.csv"
    plan.save(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(InputError, match="exists already; replace it with --force"):
        plan.save(path)
    module = importlib.import_module(FORMATS[".csv"])

    def torn(stream, *_):
        stream.write(b"1,2")
        raise OSError(28, "No space left on device")

    form = batchplan.plans.formats.PlanFormat(torn, module.read, True)
    monkeypatch.setattr(module, "FORMAT", form)
    with pytest.raises(OutputError, match="No space left"):
        plan.save(path, force=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
