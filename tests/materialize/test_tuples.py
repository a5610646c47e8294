"""Tables of negatives as texts: every row against the table."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from batchplan import InputError, Negatives
from batchplan.cli.app import app
from batchplan.data import records
from batchplan.materialize import gathering, materialize, materializing
from batchplan.plans import PlanMetadata

ROWS, M = 300, 3
GENERATOR = np.random.default_rng(0)
ANCHORS = GENERATOR.permutation(ROWS)[:200]
SHIFTS = GENERATOR.permuted(np.tile(np.arange(1, ROWS), (200, 1)), axis=1)[:, :M]
TABLE = Negatives(
    ANCHORS, (ANCHORS[:, None] + SHIFTS) % ROWS,
    PlanMetadata(batch_size=8, num_rows=ROWS, partitions_rows=False, fingerprint="b2:0"),
)  # fmt: skip
TEXTS = [f"q{row}" for row in range(ROWS)], [f"d{row}" for row in range(ROWS)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": range(ROWS), "q": TEXTS[0], "d": TEXTS[1]}), "data.parquet", 40)


def rows_of(folder, manifest):
    tables = [pq.read_table(Path(folder) / shard["path"]) for shard in manifest["shards"]]
    assert [len(table) for table in tables] == [shard["rows"] for shard in manifest["shards"]]
    return pa.concat_tables(tables)


def expected_tuples():
    for anchor, negatives in zip(TABLE.anchors, TABLE.negatives, strict=True):
        yield [f"q{anchor}", f"d{anchor}", *(f"d{row}" for row in negatives)]


@pytest.mark.parametrize("column", [None, ["q", "d"]])
@pytest.mark.parametrize("shard_rows", [7, 8192])
def test_n_tuples(column, shard_rows):
    options = {"column": column, "shard_rows": shard_rows}
    manifest = materialize(TABLE, "data.parquet", "out", **options).manifest
    got = rows_of("out", manifest)
    names = ["anchor", "positive", "negative_1", "negative_2", "negative_3"]
    assert got.column_names == manifest["columns"] == names
    assert [list(row.values()) for row in got.to_pylist()] == list(expected_tuples())
    assert (manifest["layout"], manifest["rows"], manifest["num_rows"]) == ("n-tuple", 200, ROWS)
    assert (manifest["plan"], manifest["fingerprint"]) == (TABLE.digest, "b2:0")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_a_text_is_its_own_positive(kind):
    table = pq.read_table("data.parquet")
    if kind == "arrow":
        with pa.ipc.new_file("data.arrow", table.schema) as file:
            file.write_table(table)
    lines = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    Path("data.jsonl").write_text(lines)
    manifest = materialize(TABLE, f"data.{kind}", "out", column=["d", "d"]).manifest
    got = rows_of("out", manifest)
    documents = [[f"d{row}" for row in rows] for rows in TABLE.negatives]
    expected = [
        [f"d{row}", f"d{row}", *others]
        for row, others in zip(TABLE.anchors, documents, strict=True)
    ]
    assert [list(row.values()) for row in got.to_pylist()] == expected


def test_triplets():
    options = {"layout": "triplet", "column": ["d", "q"]}
    manifest = materialize(TABLE, "data.parquet", "out", **options).manifest
    got = rows_of("out", manifest)
    assert got.column_names == ["anchor", "positive", "negative"]
    rows = np.column_stack([np.repeat(TABLE.anchors, M), TABLE.negatives.ravel()])
    assert [list(row.values()) for row in got.to_pylist()] == [
        [f"d{anchor}", f"q{anchor}", f"q{negative}"] for anchor, negative in rows
    ]


@pytest.mark.parametrize("kind", ["arrow", "jsonl"])
def test_other_formats_hold_the_same(kind):
    materialize(TABLE, "data.parquet", "out", format=kind)
    if kind == "jsonl":
        lines = Path("out/shard-000000.jsonl").read_text().splitlines()
        got = [list(json.loads(line).values()) for line in lines]
    else:
        with pa.ipc.open_stream("out/data-00000-of-00001.arrow") as reader:
            got = [list(row.values()) for row in reader.read_all().to_pylist()]
    assert got == list(expected_tuples())


def test_little_memory_gives_the_same_rows(monkeypatch):
    """Several runs on disk, and windows that do not divide into tuples."""
    monkeypatch.setattr(materializing, "_room", lambda *_: 1500)
    monkeypatch.setattr(records, "_READ_BYTES", 500)
    monkeypatch.setattr(materializing, "Ordered", partial(gathering.Ordered, window=250))
    done = materialize(TABLE, "data.parquet", "out")
    assert done.temporary > 0
    got = rows_of("out", done.manifest)
    assert [list(row.values()) for row in got.to_pylist()] == list(expected_tuples())


def test_anchor_and_positive_are_known_by_name():
    pq.write_table(
        pa.table({"positive": TEXTS[1], "anchor": TEXTS[0], "note": TEXTS[0]}), "named.parquet"
    )
    manifest = materialize(TABLE, "named.parquet", "out").manifest
    got = rows_of("out", manifest)
    assert [list(row.values()) for row in got.to_pylist()] == list(expected_tuples())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layout": "order"}, "layout: got order with 1 workers for a table of negatives"),
        ({"workers": 2}, "expected n-tuple or triplet with 1"),
        ({"column": ["q"]}, "data.parquet: got 1 columns of text (q), expected 2"),
        ({"column": ["q", "d", "q"]}, "name them in this order with --column"),
    ],
)
def test_refused(options, says):
    with pytest.raises(InputError) as error:
        materialize(TABLE, "data.parquet", "out", **options)
    assert says in str(error.value)
    assert not Path("out").exists()


def test_the_command(tmp_path):
    TABLE.save("negatives.parquet")
    arguments = ["materialize", "negatives.parquet", "data.parquet", "-o", "out", "-q"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (path,) = Path("out").glob("*.parquet")
    got = [list(row.values()) for row in pq.read_table(path).to_pylist()]
    assert got == list(expected_tuples())
    pq.write_table(pq.read_table("data.parquet")[:299], "short.parquet")
    arguments = ["materialize", "negatives.parquet", "short.parquet", "-o", "other"]
    result = CliRunner().invoke(app, arguments)
    assert "made for 300 rows, got data of 299" in result.output


def test_a_plan_is_not_laid_out_so():
    from batchplan.plans import Batching, Plan

    plan = Plan.cut(range(ROWS), Batching(8), num_rows=ROWS)
    for layout in ("n-tuple", "triplet"):
        with pytest.raises(InputError, match=f"layout: got {layout} for a plan of batches"):
            materialize(plan, "data.parquet", "out", layout=layout)
