"""The formats that we write byte by byte, read back with other code, and JSON of every type."""

from __future__ import annotations

import datetime
import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError
from batchplan.materialize import materialize
from batchplan.materialize.json_text import objects

from .conftest import ROWS, plan_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(table, **options):
    pq.write_table(table, "data.parquet")
    plan = plan_of()
    materialize(plan, "data.parquet", "out", shard_rows=40, **options)
    return plan.rows.tolist()


def test_tar(table):
    raw = pa.array([b"x" * (i * 37 % 1100) for i in range(ROWS)])
    rows = write(table.append_column("raw", raw), format="webdataset")
    members = []
    for path in sorted(Path("out").glob("*.tar")):
        assert path.stat().st_size % 512 == 0
        with tarfile.open(path) as tar:
            members += [(one.name, one.mtime, tar.extractfile(one).read()) for one in tar]
    assert [name for name, _, _ in members] == [
        f"{place:09d}.{suffix}" for place in range(ROWS) for suffix in ("raw", "json")
    ]
    assert {time for _, time, _ in members} == {0}
    assert [content for _, _, content in members[::2]] == [raw[row].as_py() for row in rows]
    documents = [json.loads(content) for _, _, content in members[1::2]]
    assert [one["batchplan_row"] for one in documents] == rows
    assert [one["text"] for one in documents] == table["text"].take(pa.array(rows)).to_pylist()


def test_mds(table):
    """By the description of the format alone."""
    table = table.append_column("raw", pa.array([b"x" * (i % 9) for i in range(ROWS)]))
    rows = write(table, format="mds")
    samples = []
    for shard in json.loads(Path("out/index.json").read_bytes())["shards"]:
        content = Path("out", shard["raw_data"]["basename"]).read_bytes()
        assert len(content) == shard["raw_data"]["bytes"]
        count = int(np.frombuffer(content, "<u4", 1)[0])
        assert count == shard["samples"]
        offsets = np.frombuffer(content, "<u4", count + 1, 4)
        config = json.loads(content[4 * (count + 2) : offsets[0]])
        assert config == {name: shard[name] for name in config}
        for start, stop in pairwise(offsets):
            samples.append(decoded(content[start:stop], config))
        assert offsets[-1] == len(content)
    assert len(samples) == ROWS
    expected = table.take(rows).append_column("batchplan_row", pa.array(rows)).to_pylist()
    for got, row in zip(samples, expected, strict=True):
        assert got == row


def decoded(sample, config):
    stream, row = io.BytesIO(sample), {}
    sizes = [
        size or int(np.frombuffer(stream.read(4), "<u4")[0]) for size in config["column_sizes"]
    ]
    for name, kind, size in zip(
        config["column_names"], config["column_encodings"], sizes, strict=True
    ):
        content = stream.read(size)
        if kind == "str":
            row[name] = content.decode()
        elif kind == "json":
            row[name] = json.loads(content)
        elif kind == "bytes":
            row[name] = content
        else:
            dtype = "int64" if kind == "int" else kind.split(":")[-2 if ":" in kind else 0]
            values = np.frombuffer(content, dtype).tolist()
            row[name] = values if kind.startswith("ndarray") else values[0]
    assert not stream.read()
    return row


def test_refusals(table):
    def refused(match, extra, name, format_name):
        pq.write_table(table.append_column(name, pa.array(extra)), "data.parquet")
        with pytest.raises(InputError, match=match):
            materialize(plan_of(), "data.parquet", "out", format=format_name)
        assert not Path("out").exists()

    days = pa.array([1] * ROWS, pa.duration("s"))
    for kind in ("mds", "jsonl", "webdataset"):
        refused(r"column 'days': is duration\[s\], which JSON cannot hold", days, "days", kind)
    nulls = ["x", None] * (ROWS // 2) + ["x"]
    refused("column 'none': contains at least .* nulls, which MDS cannot", nulls, "none", "mds")
    refused("column 'none': contains nulls", [b"x", None] * 101 + [b"x"], "none", "webdataset")
    refused("column 'A/b': contains bytes, so its name", [b"x"] * ROWS, "A/b", "webdataset")


def test_json_of_every_type():
    values = {
        "integer": [1, None, -3],
        "small": pa.array([1, None, 255], pa.uint8()),
        "number": [1.0, float("nan"), 1e300],
        "half": pa.array(np.array([1.5, np.inf, -2], np.float16)),
        "truth": [True, None, False],
        "text": ['"\\/\b\f\n\r\t\x00\x1f\u2028é😀', None, ""],
        "none": pa.nulls(3),
        "list": [[1, None], [], None],
        "deep": [[["a"], []], None, [None, ["b", None]]],
        "struct": [{"x": 1, "y": None}, None, {"x": None, "y": "é"}],
        "structs": [[{"x": [1.0]}], [], [None, {"x": None}]],
        "empty": pa.array([{}, None, {}], pa.struct([])),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2),
        "large": pa.array([["a"], None, []], pa.large_list(pa.large_string())),
        "day": [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)],
        "time": pa.array([0, None, 1], pa.timestamp("s")),
        'na"me': [1, 2, 3],
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(one) for name, one in values.items()})
    expected = batch.to_pylist()
    for row in expected:
        row["day"] = row["day"] and str(row["day"])
        row["time"] = row["time"] and str(row["time"])
        for name in ("number", "half"):
            row[name] = row[name] if np.isfinite(row[name]) else None
    got = [json.loads(text) for text in objects(batch)]
    assert got == expected
    assert [json.loads(text) for text in objects(batch.slice(1))] == expected[1:]
    assert isinstance(got[0]["number"], float)


def test_json_numbers_read_back_as_they_are():
    numbers = np.random.default_rng(0).standard_normal(20_000) * 10.0 ** np.arange(-10, 10).repeat(
        1000
    )
    for dtype in (np.float64, np.float32, np.float16):
        with np.errstate(over="ignore"):
            column = numbers.astype(dtype)
        column = column[np.isfinite(column)]
        batch = pa.RecordBatch.from_pydict({"x": pa.array(column)})
        got = [json.loads(text)["x"] for text in objects(batch)]
        assert np.array_equal(np.array(got).astype(dtype), column)
