"""The command `materialize`, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from batchplan.embedding import embed
from batchplan.plans import Plan


@pytest.fixture
def planned(npy, done):
    """plan.npy, and data.parquet of the 48 rows that it orders."""
    done("random", *npy, "-b", 8, "-q")
    pq.write_table(pa.table({"text": [f"row {i}" for i in range(48)]}), "data.parquet")
    return ["plan.npy", "data.parquet", "-o", "out"]


def test_what_it_writes_and_says(planned, done):
    result = done("materialize", *planned)
    assert result.stdout == ""
    for line in ("rows         48 of 48", "layout       order", "files        1 of parquet, "):
        assert line in result.stderr
    table = pq.read_table("out")
    rows = Plan.load("plan.npy").rows.tolist()
    assert table.to_pydict() == {"text": [f"row {row}" for row in rows], "batchplan_row": rows}


def test_json(planned, done):
    document = json.loads(done("materialize", *planned, "--json", "--workers", 2).stdout)
    assert document["layout"] == "order"
    assert (document["rows"], document["workers"], document["files"]) == (48, 2, 2)
    assert document["bytes_temporary"] == 0
    assert document["plan"] == Plan.load("plan.npy").digest


def test_quiet(planned, done):
    result = done("materialize", *planned, "-q")
    assert result.output == ""


def test_a_plan_without_metadata(planned, done, refused):
    Path("bare.txt").write_text("".join(f"{row}\n" for row in range(48)))
    assert "--batch-size" in refused("materialize", "bare.txt", *planned[1:])
    done("materialize", "bare.txt", *planned[1:], "-b", 8, "-q")
    assert pq.read_table("out")["batchplan_row"].to_pylist() == list(range(48))


def test_several_devices(npy, planned, done, refused):
    done("random", *npy, "-b", 5, "--world-size", 3, "-o", "three.npy", "-q")
    done("materialize", "three.npy", *planned[1:])
    assert sorted(os.listdir("out")) == ["_batchplan.json", "rank-0", "rank-1", "rank-2"]
    assert sum(len(pq.read_table(f"out/rank-{rank}")) for rank in range(3)) == 48
    done("random", *npy, "-b", 5, "--world-size", 4, "-o", "four.npy", "-q")
    done("materialize", "four.npy", "data.parquet", "-o", "parts")
    done("random", *npy, "-b", 8, "--world-size", 5, "-o", "uneven.npy", "-q")
    options = ["data.parquet", "--layout", "rank-major", "-o", "other"]
    refused("materialize", "uneven.npy", *options, parts=["cannot be split", "--tail drop"])


def test_refusals(planned, npy, done, refused, run):
    refused("materialize", "nothing.npy", *planned[1:], parts=["no such file"])
    refused("materialize", "plan.npy", "nothing.parquet", "-o", "out", parts=["no such file"])
    refused("materialize", *planned, "--column", "no", parts=["no such column", "text"])
    twice = ["--column", "text", "--column", "text"]
    refused("materialize", *planned, *twice, parts=["column: got 2 names of 1 columns"])
    refused("materialize", *planned, "--shard-rows", 0, parts=["shard rows: got 0"], code=2)
    refused("materialize", *planned, "--workers", 0, parts=["workers: got 0"], code=2)
    refused("materialize", *planned, "--workers", 9, parts=["workers: got 9, expected at most 6"])
    refused("materialize", *planned, "--memory", "1", parts=["--memory"], code=4)
    pq.write_table(pa.table({"text": ["a"] * 47}), "fewer.parquet")
    refused("materialize", "plan.npy", "fewer.parquet", "-o", "out", parts=["48 rows", "47"])
    refused("materialize", *planned[:-1], "data.parquet", "-f", parts=["would overwrite"])
    os.mkdir("inputs")
    done("hardneg", *npy, "-b", 8, "-q")
    refused("materialize", "negatives.parquet", *planned[1:], parts=["columns of text", "--column"])
    assert run("materialize", *planned[:-2]).exit_code == 2
    assert run("materialize", *planned, "--format", "csv").exit_code == 2
    done("materialize", *planned, "-q")
    refused("materialize", *planned, parts=["--force"])
    done("materialize", *planned, "-q", "--force", "--format", "jsonl")
    assert "shard-000000.jsonl" in os.listdir("out")


PRESS = """
import os, sys
def opened(event, details):
    if event == "open" and str(details[0]).endswith(".jsonl"):
        os.kill(os.getpid(), {number:d})
sys.addaudithook(opened)
from batchplan.__main__ import main
main()
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_leave_nothing(how, planned):
    """When the first file of the output is opened."""
    words = ["materialize", *planned, "--format", "jsonl"]
    done = subprocess.run(
        [sys.executable, "-c", PRESS.format(number=how), *words], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert not list(Path().glob("out*"))


@pytest.fixture
def numbered(parquet, done):
    """plan.parquet with the ids of its rows, and data.parquet that has them in a column."""
    done("random", parquet, "-b", 8, "-q", "-o", "plan.parquet")
    table = pa.table({"text": list("ab") * 24, "id": [f"row {row}" for row in range(48)]})
    pq.write_table(table, "data.parquet")
    return table, ["plan.parquet", "data.parquet", "-o", "out", "-q"]


def test_a_plan_that_is_replaced_between_its_rows_and_its_ids(
    numbered, parquet, done, run, monkeypatch
):
    load = Plan.load

    def replaced(path, **options):
        plan = load(path, **options)
        done("random", parquet, "-b", 8, "-q", "--seed", 1, "-f", "-o", path)
        return plan

    monkeypatch.setattr(Plan, "load", replaced)
    result = run("materialize", *numbered[1])
    assert result.exit_code == 3
    assert "plan.parquet: was written to while it was in use (got another plan)" in result.stderr
    assert not Path("out").exists()


def test_ids_of_the_data_must_be_those_of_the_plan(numbered, done, refused):
    table, words = numbered
    done("materialize", *words)
    done("materialize", *words, "--column", "text", "-f")
    swapped = table.take([*range(46), 47, 46])
    pq.write_table(swapped, "data.parquet")
    says = [
        "column 'id' of the data: got the ids of the plan in another order",
        "data.parquet row 4",
    ]
    refused("materialize", *words, "-f", parts=says)
    refused("materialize", *words, "-f", "--column", "text", parts=says)
    done("materialize", *words, "-f", "--id-column", "")
    pq.write_table(swapped.rename_columns(["text", "number"]), "data.parquet")
    noted = "note: the plan has ids, the data no column 'id': rows pair by position"
    assert noted in done("materialize", *words[:-1], "-f").stderr
    assert "note" not in done("materialize", *words[:-1], "-f", "--id-column", "").stderr
    refused("materialize", *words, "-f", "--id-column", "number", parts=["column 'number' of"])
    refused(
        "materialize", *words, "-f", "--id-column", "no", parts=["'no': there is no such column"]
    )


@pytest.mark.parametrize("plan", ["plan.npy", "plan.npz", "plan.jsonl"])
def test_a_plan_without_ids_has_their_digest(numbered, parquet, plan, done, refused):
    table, words = numbered
    words = [plan, *words[1:]]
    done("random", parquet, "-b", 8, "-q", "-o", plan)
    done("materialize", *words)
    pq.write_table(table.take([*range(46), 47, 46]), "data.parquet")
    says = "column 'id' of the data: got other ids than were planned, or these in another order"
    refused("materialize", *words, "-f", parts=[says, "--id-column ''"])
    done("materialize", *words, "-f", "--id-column", "")
    pq.write_table(table.select(["text"]), "data.parquet")
    noted = "note: the plan has ids, the data no column 'id': rows pair by position"
    assert noted in done("materialize", *words[:-1], "-f").stderr


def test_ids_of_a_table_of_negatives(numbered, parquet, done, refused):
    table, words = numbered
    done("hardneg", parquet, "-b", 8, "-o", "mined.parquet", "-q")
    words = ("mined.parquet", *words[1:])
    done("materialize", *words)
    pq.write_table(table.take([*range(46), 47, 46]), "data.parquet")
    refused("materialize", *words, "-f", parts=["got the ids of the plan in another order"])
    table = table.set_column(1, "id", pa.array(range(48), pa.date32()))
    pq.write_table(table, "data.parquet")
    refused("materialize", *words, "-f", parts=["column 'id': got date32[day], expected integers"])
    done("materialize", *words, "-f", "--id-column", "")


def test_ids_of_several_files_and_types(parquet, done, refused):
    rows = pq.read_table(parquet).set_column(0, "id", pa.array(range(100, 148), pa.int16()))
    pq.write_table(rows, "numbers.parquet")
    done("random", "numbers.parquet", "-b", 8, "-q", "-o", "plan.parquet")
    os.mkdir("data")
    for number in range(3):
        lines = (json.dumps({"id": 100 + row}) for row in range(16 * number, 16 * number + 16))
        Path(f"data/{number}.jsonl").write_text("\n".join(lines) + "\n")
    done("materialize", "plan.parquet", "data", "-o", "out", "-q")
    Path("data/1.jsonl").write_text(Path("data/1.jsonl").read_text().replace("120", "720"))
    says = ["got other ids than the plan, first at data/1.jsonl row 4 (720, expected 120)"]
    refused("materialize", "plan.parquet", "data", "-o", "out", "-f", parts=says)


def shards_of_texts(rows=300, shards=12):
    """tx/part-0.parquet and so on, and the number of each row as other readers of tx read them."""
    os.mkdir("tx")
    parts = [list(map(int, part)) for part in np.split(np.arange(rows), shards)]
    for number, part in enumerate(parts):
        columns = {"row": part, "text": [*map(str, part)]}
        pq.write_table(pa.table(columns), f"tx/part-{number}.parquet")
    return ds.dataset("tx").to_table()["row"].to_numpy()


def test_shards_that_other_readers_read_in_another_order(folder, done, refused):
    read = shards_of_texts()  # part-0, part-1, part-10, part-11, part-2
    np.save("emb.npy", np.random.default_rng(0).standard_normal((300, 8)).astype("f4"))
    done("random", "emb.npy", "--single", "-b", 50, "-o", "mp.npy")
    message = refused("materialize", "mp.npy", "tx", "-o", "mat")
    assert "tx/part-10.parquet comes before tx/part-2.parquet in lexicographic order" in message
    assert not os.path.exists("mat")
    plan = Plan.load("mp.npy")
    for order, rows in (("lexicographic", read), ("natural", np.arange(300))):
        done("materialize", "mp.npy", "tx", "-o", order, "--shard-order", order)
        assert pq.read_table(order)["row"].to_pylist() == rows[plan.rows].tolist()


def test_embeddings_know_the_order_of_their_texts(folder, done, refused):
    shards_of_texts()
    model = SimpleNamespace(facts={}, encode=lambda texts, _column: np.ones((len(texts), 2), "f4"))
    embed(model, "tx", "emb", columns="text", shard_order="natural")
    done("random", "emb", "--single", "-b", 50, "-o", "mp.npy")
    data = "mp.npy", "tx", "-o", "mat", "--shard-order"
    message = refused("materialize", *data, "lexicographic")
    assert "plan: made for files in natural order, got lexicographic order; pass" in message
    done("materialize", *data, "natural")
    assert pq.read_table("mat")["row"].to_pylist() == Plan.load("mp.npy").rows.tolist()


def test_columns_of_shards_are_read_by_their_names(npy, done):
    done("random", *npy, "-b", 8, "-q")
    os.mkdir("d")
    table = pa.table({"a": [f"a{row}" for row in range(48)], "b": [f"b{row}" for row in range(48)]})
    pq.write_table(table[:24], "d/0.parquet")
    pq.write_table(table[24:].select(["b", "a"]), "d/1.parquet")
    done("materialize", "plan.npy", "d", "-o", "out")
    rows = Plan.load("plan.npy").rows.tolist()
    found = pq.read_table("out").to_pydict()
    assert found["a"] == [f"a{row}" for row in rows]
    assert found["b"] == [f"b{row}" for row in rows]


def test_a_plan_knows_the_order_of_its_shards(folder, done, refused):
    shards_of_texts()
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype("f4")
    os.mkdir("emb")
    for number, part in enumerate(np.split(vectors, 12)):
        np.save(f"emb/{number}.npy", part)
    base = "random", "emb", "--single", "-b", 50, "-o", "mp.npz"
    assert "emb/10.npy comes before emb/2.npy" in refused(*base)
    done(*base, "--shard-order", "natural")
    assert Plan.load("mp.npz").metadata.shard_order == "natural"
    data = "mp.npz", "tx", "-o", "mat", "--shard-order"
    message = refused("materialize", *data, "lexicographic")
    assert "plan: made for files in natural order, got lexicographic order; pass" in message
    done("materialize", *data, "natural")
    for command in ("evaluate", "refine"):
        more = ["-o", "r.npz"] if command == "refine" else []
        options = "mp.npz", "emb", "--single", *more, "--shard-order"
        assert "made for files in natural order" in refused(command, *options, "lexicographic")
        done(command, *options, "natural")
    assert Plan.load("r.npz").metadata.shard_order == "natural"
    done("concat", "mp.npz", "r.npz", "-o", "both.npz")
    assert Plan.load("both.npz").metadata.shard_order == "natural"


def test_the_plan_and_the_data_swapped(planned, refused):
    message = refused("materialize", "data.parquet", "plan.npy", "-o", "out")
    assert message.endswith("plan.npy: is a plan, expected data; give plans first: PLAN DATA\n")
