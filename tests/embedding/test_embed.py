"""Shards of embeddings from a model that is a function of the text alone."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from batchplan import InputError, OutputError, load_embeddings
from batchplan.embedding import EmbedOptions, embed
from tests.observing import Observer

ROWS = 53
PARTIAL = Path("pairs.partial")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Letters:
    """Counts the letters of a text, and the texts that it is asked for."""

    def __init__(self, stop_after=None, **facts):
        self.facts = {"model": "letters", "prompts": [None, None], **facts}
        self.asked = []
        self._left = stop_after

    def encode(self, texts, column):
        if self._left is not None and (left := self._left - len(texts)) < 0:
            raise KeyboardInterrupt
        elif self._left is not None:
            self._left = left
        self.asked += texts
        return np.array([vector(text, column) for text in texts], np.float32)


def vector(text, column):
    counts = [text.count(digit) for digit in "0123456789"]
    return [len(text), column, *counts, len(text) / 3]


def texts(side):
    """Some are equal, one is empty, and they differ in length."""
    return [f"{side} {'é' * (row % 5)} {row % 20}" * (row != 7) for row in range(ROWS)]


@pytest.fixture
def table():
    numbers = [f"n{row}" for row in range(ROWS)]
    return pa.table({"id": numbers, "anchor": texts("x"), "positive": texts("y")})


@pytest.fixture
def data(table):
    pq.write_table(table, "data.parquet", row_group_size=9)
    return "data.parquet"


def options(**changes):
    usual = {"columns": "anchor,positive", "shard_rows": 10, "batch_size": 2}
    return {**usual, **changes}


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def check_vectors(folder, count=ROWS):
    got = load_embeddings(folder)
    for column, side in enumerate((got.x, got.y)):
        expected = [vector(text, column) for text in texts("xy"[column])[:count]]
        assert side.dtype == np.float16
        np.testing.assert_array_equal(side.rows(0, count), np.float16(expected))
    return got


def test_mined_negatives(table):
    for number in (1, 2):
        table = table.append_column(
            f"hard {number}", pa.array(texts("n")[number:] + ["n"] * number)
        )
    pq.write_table(table, "mined.parquet")
    embed(Letters(), "mined.parquet", "tuples", **options(columns="anchor,positive,hard 1,hard 2"))
    got = check_vectors("tuples")
    assert len(got.negatives) == 2
    for number, matrix in enumerate(got.negatives, 1):
        words = texts("n")[number:] + ["n"] * number
        expected = [vector(text, number + 1) for text in words]
        np.testing.assert_array_equal(matrix.rows(0, ROWS), np.float16(expected))


def test_planners_read_what_it_writes(data):
    encoder = Letters()
    done = embed(encoder, data, "pairs", **options())
    assert (done.dim, done.shards, done.kept) == (13, 6, 0)
    got = check_vectors("pairs")
    assert got.ids.to_pylist() == [f"n{row}" for row in range(ROWS)]
    assert not PARTIAL.exists()
    assert json.loads(Path("pairs/_embedding.json").read_text()) == done.facts
    assert done.facts["rows"] == ROWS


def test_the_same_bytes_from_every_format(data, table):
    embed(Letters(), data, "pairs", **options())
    pq.write_table(table, "groups.parquet", row_group_size=1)
    pyarrow.feather.write_feather(table, "data.arrow", chunksize=4)
    lines = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    Path("data.jsonl").write_text(lines)
    Path("parts").mkdir()
    for number, start in enumerate(range(0, ROWS, 20)):
        pq.write_table(table[start : start + 20], f"parts/{number}.parquet")
    for other in ("groups.parquet", "data.arrow", "data.jsonl", "parts"):
        embed(Letters(), other, f"from {other}", **options())
        assert files(f"from {other}") == files("pairs")


def test_shards_are_read_a_few_rows_at_a_time(table, monkeypatch):
    from batchplan.data import records

    monkeypatch.setattr(records, "_READ_BYTES", 1)
    pq.write_table(table, "data.parquet")
    embed(Letters(), "data.parquet", "pairs", **options(shard_rows=7))
    check_vectors("pairs")


def test_equal_texts_of_a_shard_are_embedded_once(data):
    encoder = Letters()
    embed(encoder, data, "pairs", **options(shard_rows=100))
    assert sorted(encoder.asked) == sorted([*set(texts("x")), *set(texts("y"))])
    check_vectors("pairs")


def test_one_column_and_no_ids(data):
    embed(Letters(), data, "single", **options(columns="positive", id_column=""))
    assert pq.read_schema("single/shard-000000.parquet").names == ["positive"]
    assert not load_embeddings("single").paired


@pytest.mark.parametrize("stop_after", [0, 7, 40, 75])
def test_an_interrupted_run_goes_on(stop_after, data):
    embed(Letters(), data, "whole", **options())
    with pytest.raises(KeyboardInterrupt):
        embed(Letters(stop_after), data, "pairs", **options())
    assert not Path("pairs").exists()
    finished = sorted(PARTIAL.glob("shard-*"))
    times = {path.name: path.stat().st_mtime_ns for path in finished}
    encoder = Letters()
    done = embed(encoder, data, "pairs", **options())
    assert done.kept == len(finished)
    assert len(encoder.asked) == sum(
        len(set(texts(side)[start : start + 10]))
        for start in range(10 * done.kept, ROWS, 10)
        for side in "xy"
    )
    assert files("pairs") == files("whole")
    assert not PARTIAL.exists()
    assert (
        times.items()
        <= {path.name: path.stat().st_mtime_ns for path in Path("pairs").iterdir()}.items()
    )


@pytest.fixture
def interrupted(data):
    with pytest.raises(KeyboardInterrupt):
        embed(Letters(40), data, "pairs", **options())
    return data


@pytest.mark.parametrize(
    ("encoder", "changes", "names"),
    [
        ({"model": "other"}, {}, "model letters, now it is other"),
        ({"prompts": ["q", None]}, {}, "prompts"),
        ({}, {"normalize": True}, "normalize False, now it is True"),
        ({}, {"shard_rows": 11}, "shard_rows 10, now it is 11"),
        ({}, {"columns": "positive,anchor"}, "data"),
        ({}, {"id_column": ""}, "id_column id, now it is None"),
    ],
)
def test_another_run_is_not_mixed_in(encoder, changes, names, interrupted):
    before = files(PARTIAL)
    with pytest.raises(InputError, match=f"was begun with {names}.*pass --force to begin again"):
        embed(Letters(**encoder), interrupted, "pairs", **options(**changes))
    assert files(PARTIAL) == before
    done = embed(Letters(**encoder), interrupted, "pairs", **options(**changes), force=True)
    assert done.kept == 0
    embed(Letters(**encoder), interrupted, "whole", **options(**changes))
    assert files("pairs") == files("whole")


def test_shards_with_texts_are_not_mixed_with_others(data):
    with pytest.raises(KeyboardInterrupt):
        embed(Letters(40), data, "pairs", **options(keep_texts=True))
    with pytest.raises(InputError, match="was begun with texts 300, now it is None"):
        embed(Letters(), data, "pairs", **options())


@pytest.mark.parametrize(
    "answer",
    [
        lambda vectors: np.vstack([vectors, vectors[:1]]),
        lambda vectors: vectors[:-1],
        lambda vectors: vectors[:, 0],
        lambda vectors: vectors[:, :0],
        lambda vectors: vectors[:, : len(vectors) % 5 + 1],
        lambda vectors: vectors[:, :, None],
    ],
)
def test_an_encoder_returns_a_vector_for_each_text(answer, data, monkeypatch):
    class Other(Letters):
        def encode(self, texts, column):
            return answer(super().encode(texts, column))

    monkeypatch.setattr("batchplan.embedding.embedding._BATCHES_AT_ONCE", 4)
    with pytest.raises(InputError, match=r"encoder: returned \(\d.*\) for \d texts, expected \("):
        embed(Other(), data, "pairs", **options())


def test_other_ids_are_not_mixed_in(interrupted, table):
    renumbered = table.set_column(0, "id", [[f"m{row}" for row in range(ROWS)]])
    pq.write_table(renumbered, "data.parquet")
    with pytest.raises(InputError, match=r"was begun with ids \w+ sha256:"):
        embed(Letters(), "data.parquet", "pairs", **options())


def test_ids_of_a_kept_folder_are_those_of_the_data(data, table):
    embed(Letters(), data, "pairs", **options())
    pq.write_table(table.set_column(0, "id", [[f"m{row}" for row in range(ROWS)]]), data)
    with pytest.raises(InputError, match="pairs: exists already"):
        embed(Letters(), data, "pairs", **options(), reuse=True)


def test_a_folder_without_all_shards_is_refused(interrupted):
    says = r"has 2 of the 6 shards of its 53 rows; run `batchplan embed` as before to go on"
    with pytest.raises(InputError, match=f"pairs.partial: {says}"):
        load_embeddings(PARTIAL)
    embed(Letters(), interrupted, "pairs", **options())
    os.remove("pairs/shard-000002.parquet")
    with pytest.raises(InputError, match="pairs: has 5 of the 6 shards"):
        load_embeddings("pairs")


def test_other_data_are_not_mixed_in(interrupted, table):
    changed = table.set_column(1, "anchor", [[*texts("x")[:-1], "another"]])
    pq.write_table(changed, "data.parquet")
    with pytest.raises(InputError, match="was begun with data b2:"):
        embed(Letters(), "data.parquet", "pairs", **options())


@pytest.mark.parametrize("text", ["[", "[]"])
def test_damaged_facts_are_refused(text, interrupted):
    (PARTIAL / "_embedding.json").write_text(text)
    with pytest.raises(InputError, match="was begun with model None"):
        embed(Letters(), interrupted, "pairs", **options())


def test_a_damaged_shard_is_named(interrupted):
    (PARTIAL / "shard-000005.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(InputError, match=r"shard-000005.parquet: is damaged .*; remove it"):
        embed(Letters(), interrupted, "pairs", **options())


def test_shards_without_facts_are_made_again(interrupted):
    """As a writer that was killed while it removed an older folder leaves them."""
    (PARTIAL / "_embedding.json").unlink()
    assert embed(Letters(), interrupted, "pairs", **options()).kept == 0


def test_two_runs_do_not_write_to_one_folder(data):
    PARTIAL.mkdir()
    with (PARTIAL / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another run writes to it"):
            embed(Letters(), data, "pairs", **options())
    embed(Letters(), data, "pairs", **options())


def test_an_older_folder_stays_until_the_new_is_complete(data):
    embed(Letters(), data, "pairs", **options())
    before = files("pairs")
    with pytest.raises(InputError, match="pairs: exists already; replace it with --force"):
        embed(Letters(), data, "pairs", **options(shard_rows=5))
    with pytest.raises(KeyboardInterrupt):
        embed(Letters(9), data, "pairs", **options(shard_rows=5), force=True)
    assert files("pairs") == before
    embed(Letters(), data, "pairs", **options(shard_rows=5), force=True)
    assert len(files("pairs")) == 12
    assert sorted(os.listdir()) == ["data.parquet", "pairs"]


def test_finished_shards_are_kept_when_the_disk_is_full(data, monkeypatch):
    from batchplan.embedding import embedding

    def full(contents):
        if any(path.name == "shard-000003.parquet" for path in contents):
            raise OutputError("pairs: could not be written (No space left on device)")
        write(contents)

    write = embedding.write_files
    monkeypatch.setattr(embedding, "write_files", full)
    with pytest.raises(OutputError):
        embed(Letters(), data, "pairs", **options())
    monkeypatch.setattr(embedding, "write_files", write)
    assert embed(Letters(), data, "pairs", **options()).kept == 3


def test_progress_counts_the_texts_of_all_rows(data):
    observer = Observer()
    with pytest.raises(KeyboardInterrupt):
        embed(Letters(50), data, "pairs", **options())
    embed(Letters(), data, "pairs", **options(), device="cpu", observer=observer)
    assert observer.done["embed"] == observer.totals["embed"] == 2 * ROWS


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"columns": ""}, "columns: got '', expected names that differ, joined by commas"),
        ({"columns": "a,,c"}, "columns: got 'a,,c', expected names that differ"),
        ({"columns": "a,a"}, "expected names that differ"),
        ({"prompt": ["query"]}, "prompt: got 1, expected 2, one for each column"),
        ({"prompt_text": ["a", "b", "c"]}, "prompt text: got 3, expected 2"),
        ({"prompt": ["a", "b"], "prompt_text": ["a", "b"]}, "given with prompt text, expected one"),
        ({"columns": "negative_1,b,c"}, "two of which would be written as 'negative_1'; rename"),
        ({"columns": "a,a_text", "keep_texts": True}, "would be written as 'a_text'"),
        ({"batch_size": 0}, "batch size: got 0"),
        ({"shard_rows": 0}, "shard rows: got 0"),
    ],
)
def test_bad_options(changes, says):
    with pytest.raises(InputError, match=says):
        EmbedOptions(**options(**changes))


def test_bad_data(data, table):
    with pytest.raises(InputError, match="column 'no': there is no such column"):
        embed(Letters(), data, "pairs", **options(columns="no"))
    with pytest.raises(InputError, match="column 'no': there is no such column"):
        embed(Letters(), data, "pairs", **options(id_column="no"))
    gaps = table.set_column(2, "positive", [[*texts("y")[:-1], None]])
    numbers = gaps.set_column(1, "anchor", [range(ROWS)])
    twice = table.set_column(0, "id", [["n0"] * ROWS])
    Path("parts").mkdir()
    pq.write_table(gaps[:50], "parts/0.parquet")
    pq.write_table(gaps[50:], "parts/1.parquet")
    with pytest.raises(InputError, match=r"parts/1.parquet row 2: column 'positive' is null"):
        embed(Letters(), "parts", "pairs", **options())
    pq.write_table(numbers, "numbers.parquet")
    with pytest.raises(InputError, match="column 'anchor' is int64, expected texts"):
        embed(Letters(), "numbers.parquet", "pairs", **options())
    pq.write_table(twice, "twice.parquet")
    with pytest.raises(InputError, match=r"got 52 duplicate ids.*twice.parquet row 1"):
        embed(Letters(), "twice.parquet", "pairs", **options())
    with pytest.raises(InputError, match="would overwrite or join the input"):
        embed(Letters(), "parts", "parts/pairs", **options())
    with pytest.raises(InputError, match="columns: got 'id', as which the row ids are written"):
        embed(Letters(), data, "pairs", **options(columns="id,anchor"))
    letters = pa.py_buffer(b"\xff" * ROWS)
    offsets = pa.array(range(ROWS + 1), pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), ROWS, [None, offsets, letters])
    pq.write_table(table.set_column(1, "anchor", broken), "broken.parquet")
    with pytest.raises(InputError, match=r"broken.parquet: cannot be read as Parquet .*UTF8"):
        embed(Letters(), "broken.parquet", "pairs", **options())
    assert not PARTIAL.exists()


@pytest.mark.parametrize("value", [1e6, float("nan"), float("-inf")])
def test_vectors_that_float16_cannot_hold_are_refused(value, data):
    class Large(Letters):
        def encode(self, texts, column):
            vectors = super().encode(texts, column)
            vectors[[text.endswith("14") for text in texts], 3] = value
            return vectors

    with pytest.raises(InputError, match=r"data.parquet row 14: the model gives it a vector with"):
        embed(Large(), data, "pairs", **options())
    assert len(list(PARTIAL.glob("shard-*"))) == 1
