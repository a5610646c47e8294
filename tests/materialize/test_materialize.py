"""Data sets in plan order, read back with plain readers: the rows, their numbers, the files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from batchplan import InputError, OutputError, ResourceError
from batchplan.data import records
from batchplan.materialize import materialize, materializing
from batchplan.materialize.gathering import Ordered
from batchplan.materialize.options import FormatName
from tests.observing import Observer

from .conftest import ROWS, plan_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def parquet(table):
    pq.write_table(table, "data.parquet", row_group_size=30)
    return "data.parquet"


def rows_of(folder, manifest):
    """The rows of all shards in order."""
    tables = []
    for shard in manifest["shards"]:
        path = Path(folder) / shard["path"]
        tables.append(_READERS[manifest["format"]](path))
        assert len(tables[-1]) == shard["rows"]
    return pa.concat_tables(tables)


def read_arrow(path):
    with pa.ipc.open_stream(path) as reader:
        return reader.read_all()


_READERS = {"parquet": pq.read_table, "jsonl": pj.read_json, "arrow": read_arrow}


def manifest_of(folder):
    return json.loads((Path(folder) / "_batchplan.json").read_text())


def check(table, plan, output="out", **options):
    """Materialize and compare every row."""
    done = materialize(plan, options.pop("data", "data.parquet"), output, **options)
    manifest = done.manifest
    assert manifest_of(output) == manifest
    got = rows_of(output, manifest)
    rows = got["batchplan_row"].to_numpy()
    if manifest["layout"] == "order" and manifest["workers"] == 1:
        assert np.array_equal(rows, plan.rows)
    expected = table.take(rows).select(manifest["columns"])
    typed = pa.Table.from_pylist(got.to_pylist(), expected.schema)
    assert typed.to_pylist() == expected.to_pylist()
    return got, manifest


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("layout", ["order", "strided", "rank-major", "ranks"])
def test_every_row_is_in_its_place(kind, layout, table, parquet):
    plan = plan_of(world_size=2, tail="drop")
    got, manifest = check(table, plan, format=kind, layout=layout, shard_rows=32)
    assert manifest["layout"] == layout
    assert (manifest["plan"], manifest["world_size"], manifest["batch_size"]) == (plan.digest, 2, 8)
    assert sorted(got["batchplan_row"].to_pylist()) == sorted(plan.rows.tolist())
    if kind != "jsonl":
        assert got.schema.remove(got.num_columns - 1).equals(table.schema)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_files_without_rows_are_skipped_and_counted(kind, table, folder):
    os.mkdir("data")
    for name, part in (("0", table[:0]), ("1", table[:50]), ("2", table[:0]), ("3", table[50:])):
        if kind == "parquet":
            pq.write_table(part, f"data/{name}.parquet")
        else:
            Path(f"data/{name}.jsonl").write_text(
                "".join(f"{json.dumps(row)}\n" for row in part.to_pylist())
            )
    Path("data/dataset_info.json").write_text("{}")  # describes the data
    observer = Observer()
    check(table, plan_of(), data="data", observer=observer)
    assert f"note: skipped 2 files without rows, such as data/0.{kind}" in observer.notes
    for name in (1, 3):
        os.remove(f"data/{name}.{kind}")
    with pytest.raises(InputError, match="got 0 rows"):
        materialize(plan_of(), "data", "none")


@pytest.mark.parametrize("kind", ["jsonl", "arrow", "feather", "folder", "glob", "saved"])
def test_every_kind_of_input(kind, table, folder):
    data = f"data.{kind}"
    if kind == "jsonl":
        text = "\n".join(map(json.dumps, table.to_pylist()))
        Path(data).write_text(text + "\n")
    elif kind == "feather":
        pa.feather.write_feather(table, data)
    elif kind == "arrow":
        write_stream(data, table)
    else:
        os.mkdir("data")
        data = "data/*.parquet" if kind == "glob" else "data"
        pieces = {"2": table[:50], "10": table[50:120], "11": table[120:]}
        for name, piece in pieces.items():
            if kind == "saved":
                write_stream(f"data/{name}.arrow", piece)
            else:
                pq.write_table(piece, f"data/{name}.parquet")
        if kind == "saved":
            files = [{"filename": f"{name}.arrow"} for name in pieces]
            Path("data/state.json").write_text(json.dumps({"_data_files": files}))
    got, _ = check(table, plan_of(), data=data, shard_order="natural")
    if kind != "jsonl":
        assert got.schema.remove(got.num_columns - 1).equals(table.schema)


def write_stream(path, table):
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, 20)


def test_json_lines_may_differ_from_line_to_line(folder):
    lines = [{"a": 1, "b": "2024-01-01"}, {"a": 1.5}, {"b": "x", "c": [1]}] * 20
    Path("a.jsonl").write_text("\n".join(map(json.dumps, lines[:30])))
    Path("b.jsonl").write_text("\n".join(json.dumps({**line, "d": True}) for line in lines[30:]))
    plan = plan_of(60)
    materialize(plan, ["a.jsonl", "b.jsonl"], "out", format="parquet")
    got = pq.read_table("out")
    rows = got["batchplan_row"].to_pylist()
    assert got["a"].to_pylist() == [lines[row].get("a") for row in rows]
    assert got["b"].to_pylist() == [lines[row].get("b") for row in rows]
    assert got["d"].to_pylist() == [None if row < 30 else True for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_writers_of_files_may_differ_in_the_width_of_text_and_in_nulls(kind, folder):
    os.mkdir("data")
    texts = [f"row {row}" for row in range(ROWS)]
    write = pq.write_table if kind == "parquet" else pa.feather.write_feather
    for number, (text, raw, nullable) in enumerate(
        (
            (pa.string(), pa.binary(), False),
            (pa.large_string(), pa.binary(), True),
            (pa.string_view(), pa.large_binary(), False),
        )
    ):
        fields = [("text", text), ("raw", raw), ("number", pa.int64())]
        schema = pa.schema([pa.field(*field, nullable=nullable) for field in fields])
        own = range(70 * number, min(70 * number + 70, ROWS))
        words = [texts[row] for row in own]
        columns = {"text": words, "raw": [word.encode() for word in words], "number": own}
        write(pa.table(columns).cast(schema), f"data/{number}.{kind}")
    plan = plan_of()
    materialize(plan, "data", "out")
    got = pq.read_table("out")
    assert got["number"].to_pylist() == got["batchplan_row"].to_pylist() == plan.rows.tolist()
    assert got["text"].to_pylist() == [texts[row] for row in plan.rows]
    assert got["raw"].to_pylist() == [texts[row].encode() for row in plan.rows]
    assert got.schema.types[:2] == [pa.large_string(), pa.large_binary()]


@pytest.mark.parametrize("repeats", [False, True])
def test_little_memory_gives_the_same_rows(repeats, table, folder):
    """Several runs on disk, and few rows at once."""
    order = np.random.default_rng(2).permutation(ROWS)
    if repeats:
        order = np.concatenate((order[:90], order[40:]))
    (folder / "runs").mkdir()
    noted = []
    rows = Ordered(order, folder / "runs", room=4000, window=900)
    rows.fill(table.to_batches(max_chunksize=11), noted.append)
    assert len(noted) == 1
    assert len(list((folder / "runs").iterdir())) > 3
    assert rows.temporary > table.nbytes
    batches, numbers = zip(*rows.between(0, 100), *rows.between(100, len(order)), strict=True)
    assert len(batches) > 10
    assert np.concatenate(numbers).tolist() == order.tolist()
    assert pa.Table.from_batches(batches).equals(table.take(order).combine_chunks())


def test_a_run_may_hold_no_row_of_the_plan(table, folder):
    (folder / "runs").mkdir()
    order = np.arange(ROWS)[::-1][:20].copy()
    rows = Ordered(order, folder / "runs", room=4000, window=900)
    rows.fill(table.to_batches(max_chunksize=11), lambda need: None)
    batches = [batch for batch, _ in rows.between(0, 20)]
    assert pa.Table.from_batches(batches).to_pylist() == table.take(order).to_pylist()


@pytest.fixture
def little_memory(monkeypatch):
    """Room for a few rows at once."""
    monkeypatch.setattr(materializing, "_room", lambda entries, runtime: 5000)
    monkeypatch.setattr(records, "ROWS_AT_ONCE", 11)


def test_runs_are_announced_and_removed(little_memory, parquet):
    observer = Observer()
    done = materialize(plan_of(), parquet, "out", observer=observer)
    assert observer.notes[0].startswith("cost: ")
    assert "of temporary disk next to out" in observer.notes[0]
    assert done.temporary > 0
    assert sorted(os.listdir()) == ["data.parquet", "out"]
    assert sorted(os.listdir("out")) == ["_batchplan.json", "shard-000000.parquet"]


def test_too_small_a_disk_is_told_before_it_is_full(little_memory, parquet, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("", (), {"free": 100}))
    with pytest.raises(OutputError, match=r"has 100 B of space, expected about .* free some"):
        materialize(plan_of(), parquet, "out")
    assert os.listdir() == ["data.parquet"]


def test_too_little_memory(parquet):
    with pytest.raises(ResourceError, match="places of 203 rows need"):
        materialize(plan_of(), parquet, "out", memory=1)
    assert os.listdir() == ["data.parquet"]


def test_columns_are_chosen(table, parquet):
    got, manifest = check(table, plan_of(), column=["score", "text"])
    assert got.column_names == ["score", "text", "batchplan_row"]
    assert manifest["columns"] == ["score", "text"]


@pytest.mark.parametrize("kind", get_args(FormatName))
def test_the_same_inputs_give_the_same_bytes(kind, parquet, request):
    """Whatever the memory."""
    for output in ("a", "b"):
        options = {"format": kind, "shard_rows": 50, "column": ["text", "score"]}
        done = materialize(plan_of(), parquet, output, **options)
        assert bool(done.temporary) == (output == "b")
        request.getfixturevalue("little_memory")
    for name in os.listdir("a"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes(), name


def fails(match, plan=None, data="data.parquet", output="out", force=False, **options):
    before = sorted(Path().rglob("*"))
    with pytest.raises(InputError, match=match) as error:
        materialize(plan or plan_of(), data, output, **options, force=force)
    assert "\n" not in str(error.value)
    assert sorted(Path().rglob("*")) == before


def test_bad_data(table, parquet, folder):
    fails("made for 100 rows, got data of 203", plan_of(100))
    fails("column 'nothing': there is no such column", column=["nothing"])
    fails("no such file or folder", data="nothing.parquet")
    Path("a.csv").write_text("a")
    fails("got suffix .csv, expected .parquet, .arrow or .jsonl", data="a.csv")
    fails("is repeated for data", data=["data.parquet", "./data.parquet"])
    pq.write_table(table.select(["text"]), "other.parquet")
    fails("columns are not as in data.parquet", data=["data.parquet", "other.parquet"])
    pq.write_table(table.set_column(0, "text", [table["text"].cast(pa.binary())]), "other.parquet")
    fails("other.parquet: its .*'text' is binary;", data=["data.parquet", "other.parquet"])
    pq.write_table(table.append_column("batchplan_row", table["number"]), "again.parquet")
    fails("has a column 'batchplan_row'", data="again.parquet")
    Path("bad.parquet").write_bytes(b"PAR1 nothing PAR1" * 9)
    fails("bad.parquet: cannot be read as Parquet", data="bad.parquet")
    Path("bad.jsonl").write_text('{"a": 1}\n{"a": "b"}\n')
    fails("bad.jsonl, after line 0: cannot be read as JSON lines", data="bad.jsonl")
    Path("none.jsonl").touch()
    fails("none.jsonl: got 0 rows", data="none.jsonl")
    fails("expected files of one kind", data=["data.parquet", "bad.jsonl"])
    os.mkdir("empty")
    fails("no .parquet, .arrow or .jsonl file there", data="empty")
    os.makedirs("splits/train")
    Path("splits/dataset_dict.json").write_text("{}")
    fails("several splits, train; name one", data="splits")


def test_bytes_are_no_json(parquet, table):
    pq.write_table(table.append_column("raw", pa.array([b"x"] * ROWS)), "raw.parquet")
    fails("column 'raw': is binary, which JSON cannot hold", data="raw.parquet", format="jsonl")
    check(table, plan_of(), data="raw.parquet", format="jsonl", column=["text"])


def test_existing_folders(parquet, table):
    materialize(plan_of(), parquet, "out")
    fails("exists already; replace it with --force")
    materialize(plan_of(seed=1), parquet, "out", format="jsonl", force=True)
    assert sorted(os.listdir("out")) == ["_batchplan.json", "shard-000000.jsonl"]
    assert manifest_of("out")["plan"] == plan_of(seed=1).digest
    os.mkdir("mine")
    Path("mine/thesis.tex").touch()
    fails("other files .*which --force does not replace", output="mine", force=True)
    Path("file").touch()
    fails("is a file, expected a folder", output="file", force=True)
    fails("folder .* does not exist", output="no/out")


def test_inputs_are_kept(parquet, table, folder):
    fails("would overwrite or join the input", output="data.parquet", force=True)
    os.mkdir("data")
    pq.write_table(table, "data/a.parquet")
    fails("would overwrite or join the input data", data="data", output="data/out")
    materialize(plan_of(), parquet, "out")
    pq.write_table(table, "out/a.parquet")
    fails("has the input out/a.parquet inside", data="out/a.parquet", force=True)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_nothing(parquet, monkeypatch):
    real = os.fsync

    def interrupted(descriptor):
        monkeypatch.setattr(os, "fsync", real)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        materialize(plan_of(), parquet, "out")
    assert os.listdir() == ["data.parquet"]


def test_a_full_disk_leaves_what_was_there(parquet, monkeypatch):
    materialize(plan_of(), parquet, "out")
    before = {path: path.read_bytes() for path in Path("out").iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        materialize(plan_of(seed=1), parquet, "out", force=True)
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before
    assert sorted(os.listdir()) == ["data.parquet", "out"]


def test_leftovers_of_killed_writers_are_removed(parquet):
    os.makedirs("out.partial/rank-0")
    with pytest.raises(InputError, match=r"out\.partial: has other files"):
        materialize(plan_of(), parquet, "out")
    Path("out.partial/.lock").touch()
    materialize(plan_of(), parquet, "out")
    assert not list(Path("out").glob(".*"))
    assert not Path("out/rank-0").exists()
    assert sorted(os.listdir()) == ["data.parquet", "out"]


def test_a_folder_that_cannot_be_replaced_stays(parquet, monkeypatch):
    materialize(plan_of(), parquet, "out")
    materialize(plan_of(seed=1), parquet, "out", force=True)
    assert manifest_of("out")["plan"] == plan_of(seed=1).digest
    assert sorted(os.listdir()) == ["data.parquet", "out"]
    real = os.rename

    def refuse(source, target):
        if Path(target).name == "out" and Path(source).suffixes == [".partial"]:
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OutputError, match="Input/output error"):
        materialize(plan_of(seed=2), parquet, "out", force=True)
    assert manifest_of("out")["plan"] == plan_of(seed=1).digest
