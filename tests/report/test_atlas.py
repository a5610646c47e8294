"""The table for embedding-atlas, against dense computations."""

import io
import json
import shutil
import socket
import subprocess
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.cli.reporting import ATLAS
from batchplan.errors import InputError
from batchplan.plans import Batching, Plan
from batchplan.report import write_report
from tests.dense import unit_sides

from .conftest import ROWS, SIZE

QUICK = {"random_trials": 2, "device": "cpu"}


def table_of(plan, embeddings, folder, **options):
    path = folder / "atlas.parquet"
    write_report(
        {"plan.npy": plan}, embeddings, folder / "one.html", atlas=path, force=True,
        **QUICK, **options,
    )  # fmt: skip
    return pq.read_table(path)


def test_rows_are_those_of_the_dense_matrix(embeddings, plans, tmp_path):
    """A plan of some rows, with a last batch of half the size that repeats some of them."""
    rows = np.r_[np.arange(4 * SIZE) * 2, np.arange(SIZE // 2) * 4]
    ends = [0, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE, 4 * SIZE + SIZE // 2]
    plan = Plan.from_batches(rows, ends, Batching(SIZE), num_rows=ROWS)
    texts = pa.table({"q": [f"q{row}" for row in range(ROWS)], "a": ["a" * 999] * ROWS})
    pq.write_table(texts, tmp_path / "texts.parquet")
    table = table_of(plan, embeddings, tmp_path, text_table=str(tmp_path / "texts.parquet"))
    found = table.to_pylist()
    assert list(found[0]) == [
        "projection_x", "projection_y", "neighbors", "batch", "loss", "text", "positive_text",
    ]  # fmt: skip
    x, y = unit_sides(embeddings)
    similar = x @ y.T
    for row, got in enumerate(found):
        assert (got["text"], got["positive_text"]) == (f"q{row}", "a" * 500)
        if row not in rows:
            assert got["neighbors"] is got["batch"] is got["loss"] is None
            continue
        number = int(np.flatnonzero(rows == row)[0]) // SIZE  # the first batch of the row
        batch = rows[number * SIZE : (number + 1) * SIZE]
        assert got["batch"] == number + 1
        logits = similar[np.ix_(batch, batch)] / 0.05
        own = int(np.flatnonzero(batch == row)[0])
        ways = [np.log(np.exp(one[own]).sum()) - one[own, own] for one in (logits, logits.T)]
        assert got["loss"] == pytest.approx(np.mean(ways), abs=1e-5)
        others = batch[batch != row]
        nearest = others[np.argsort(-similar[row, others])][:10]
        assert got["neighbors"]["ids"] == nearest.tolist()
        np.testing.assert_allclose(
            got["neighbors"]["distances"], 1 - similar[row, nearest], atol=1e-6
        )
    centred = x - x.mean(0)
    axes = np.linalg.svd(centred)[2][:2]
    axes *= np.sign(np.take_along_axis(axes, abs(axes).argmax(1)[:, None], 1))
    for name, axis in zip(("projection_x", "projection_y"), axes, strict=True):
        np.testing.assert_allclose(table[name].to_numpy(), centred @ axis, atol=1e-5)


def test_batches_of_one_row_and_no_texts(embeddings, tmp_path):
    plan = Plan.from_batches(np.arange(ROWS), np.arange(ROWS + 1), Batching(SIZE), num_rows=ROWS)
    table = table_of(plan, embeddings, tmp_path)
    assert table["neighbors"].to_pylist() == [{"ids": [], "distances": []}] * ROWS
    assert table["batch"].to_pylist() == list(range(1, ROWS + 1))
    assert table.column_names[-1] == "loss"


@pytest.mark.skipif(not shutil.which("embedding-atlas"), reason="needs embedding-atlas")
def test_embedding_atlas_loads_every_column(embeddings, plans, tmp_path):
    """The program itself, with the options that `report` prints: 0.26.0 did when this was written.
    No environment of the tests has it, as it brings other versions of torch."""
    texts = pa.table({"q": [f"q{row}" for row in range(ROWS)], "a": ["a"] * ROWS})
    pq.write_table(texts, tmp_path / "texts.parquet")
    plan = plans["random.npy"]
    table = table_of(plan, embeddings, tmp_path, text_table=str(tmp_path / "texts.parquet"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}/data"
    command = [*ATLAS.split(), str(tmp_path / "atlas.parquet"), "--port", port]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            props = json.loads(_answer(f"{address}/metadata.json"))["props"]
            shown = pq.read_table(io.BytesIO(_answer(f"{address}/dataset.parquet")))
        finally:
            server.terminate()
    assert props["data"]["projection"] == {"x": "projection_x", "y": "projection_y"}
    assert (props["data"]["neighbors"], props["data"]["text"]) == ("neighbors", "text")
    for name in ("projection_x", "batch", "loss", "text", "positive_text"):
        assert shown[name].to_pylist() == table[name].to_pylist()


def _answer(address):
    """What a server sends that starts within two minutes."""
    end = monotonic() + 120
    while True:
        try:
            return urlopen(address).read()
        except URLError:
            if monotonic() > end:
                raise
            sleep(0.5)


def test_refusals(embeddings, plans, tmp_path):
    page = tmp_path / "one.html"
    with pytest.raises(InputError, match="atlas: got 3 plans, expected one"):
        write_report(plans, embeddings, page, atlas=tmp_path / "a.parquet", **QUICK)
    one = {"random.npy": plans["random.npy"]}
    with pytest.raises(InputError, match="choose a name that ends in"):
        write_report(one, embeddings, page, atlas=tmp_path / "a.csv", **QUICK)
    (tmp_path / "a.parquet").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_report(one, embeddings, page, atlas=tmp_path / "a.parquet", **QUICK)
    assert not page.exists()
