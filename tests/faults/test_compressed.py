"""Small files that decode to much more: read in parts, or refused in one line.

Each reader gets files that the encoding or the codec of their format shrinks many times. What it
needs of memory is in proportion to what it returns, not to what it decodes.
"""

import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.data.arrow_types import TAKES_VIEWS
from batchplan.plans.formats.parquet import NEGATIVES_KEY

ROWS, LONG = 20_000, 1 << 20  # a text of 1 MB in each row would be 20 GB
PLAIN = 400  # rows of texts of 1 MB that are written one by one
SMALL = 4 << 20  # bytes of a file
MOST = 500 << 20  # bytes of memory: 256 MiB that are always allowed, and working space

LOAD = """
import json, os, resource, sys, threading, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import numpy as np
import batchplan as b
import batchplan.data.candidate_files, batchplan.embedding.embedding
import batchplan.materialize.materializing
from batchplan.data import Candidates, load_labels
from batchplan.data.formats import arrow, parquet
from batchplan.data.table_files import check_rows
from batchplan.data.texts import load_texts
from batchplan.errors import InputError, ResourceError
from batchplan.materialize import materialize as materialized
from batchplan.plans import Batching, Plan
from batchplan.plans.formats.parquet import entry_ids
from batchplan.plans.negatives import Negatives

class Model:
    facts = {}
    def encode(self, texts, column):
        return np.ones((len(texts), 2), np.float32)

def materialize(path, n, format):
    plan = Plan.from_batches(np.arange(8), np.arange(0, 9, 2), Batching(2), num_rows=n)
    return materialized(plan, path, path + ".out", format=format, memory="500MB")

def used():  # without temporary files, which are mapped
    return int(open("/proc/self/status").read().partition("RssAnon:")[2].split()[0]) << 10

def load(kind, path, n):
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    rows = b.Embeddings.from_arrays(np.ones((n, 2), np.float32), ids=[*map(str, range(n))])
    loads = {
        "embeddings": lambda: b.load_embeddings(path, single=True, memory="1GB"),
        "labels": lambda: load_labels("s", rows, path),
        "texts": lambda: load_texts("s", rows, np.arange(0, n, 9999), path),
        "ids of a table": lambda: check_rows(Path(path), rows),
        "candidates": lambda: Candidates.load(path),
        "plan": lambda: Plan.load(path),
        "ids of a plan": lambda: entry_ids(Path(path), "d"),
        "negatives": lambda: Negatives.load(path),
        "materialize": lambda: materialize(path, n, "parquet"),
        "materialize jsonl": lambda: materialize(path, n, "jsonl"),
        "embed": lambda: b.embed(Model(), path, path + ".out", columns="s"),
    }
    seen = [used()]

    def watch():
        while True:
            seen.append(used())
            time.sleep(0.002)

    threading.Thread(target=watch, daemon=True).start()
    try:
        loads[kind]()
        said = "read"
    except (InputError, ResourceError) as error:
        said = f"{type(error).__name__} {error}"
    print(json.dumps([max(seen) - seen[0], said]), flush=True)

for line in sys.stdin:  # each file by a process of its own, which has imported all
    if (child := os.fork()) == 0:
        load(*json.loads(line))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"killed or failed: {line}")
"""


def save(path, columns, **parquet):
    """Write columns in one piece by zstd, in the format of the suffix."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if path.suffix == ".parquet":
        how = {"compression": "zstd", "store_schema": bool(table.schema.metadata)}
        pq.write_table(table, path, row_group_size=1 << 30, **how, **parquet)
    else:
        new = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with new(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
            file.write_table(table)
    return len(table)


def same(rows=ROWS):
    """A text of 1 MB in each row, stored once."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * LONG])


def views(rows=ROWS, step=0):
    """Texts of 1 MB, each from ``step`` bytes further on in a single text."""
    if not TAKES_VIEWS:
        pytest.skip("this pyarrow makes no views of buffers")
    _, view, text = pa.array(["x" * (LONG + rows * step)], pa.string_view()).buffers()
    places = np.tile(np.frombuffer(view, "<i4"), (rows, 1))
    places[:, 0], places[:, 3] = LONG, step * np.arange(rows)
    view = pa.py_buffer(places.tobytes())
    return pa.Array.from_buffers(pa.string_view(), rows, [None, view, text])


def plain(rows=PLAIN):
    """Different texts of 1 MB, stored as often."""
    return pa.array([f"{row:x<{LONG}}" for row in range(rows)])


def listed(values):
    """Lists of one value."""
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), values)


def vectors(rows, dim=2):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ones(rows * dim, np.float32)), dim)


def with_ids(values):
    return {"v": vectors(len(values)), "id": values}


def candidates(rows, length):
    """Each row lists itself and all that follow."""
    ends = np.arange(0, rows * length + 1, length)
    found = (np.arange(rows)[:, None] + np.arange(length)) % rows
    return {
        "ids": pa.LargeListArray.from_arrays(ends, found.ravel()),
        "scores": pa.LargeListArray.from_arrays(ends, np.ones(rows * length, np.float32)),
        "positive": np.ones(rows, np.float32),
    }


def negatives(rows, length):
    """The negatives of each row are those that follow."""
    found = (np.arange(rows)[:, None] + np.arange(1, length + 1)) % rows
    lists = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), length)
    return keyed({"row": np.arange(rows), "negatives": lists})


def keyed(columns):
    return pa.table(columns).replace_schema_metadata({NEGATIVES_KEY: b'{"digest": "d"}'})


PLAINLY = {"use_dictionary": False}
DELTAS = PLAINLY | {"column_encoding": "DELTA_BINARY_PACKED"}
LISTS = {
    "use_dictionary": ["scores"],
    "column_encoding": {"ids.list.element": "DELTA_BINARY_PACKED"},
}
GROUP, BATCH, IDS = "row group 0: got", "record batch of .* rows: got", "column 'id': ids: got"
# The reader, the suffix of the file, its columns, options of Parquet, and what the reader says.
FILES = {
    "labels": ("labels", ".parquet", lambda: {"s": same()}, {}, "read"),
    "labels, plain": ("labels", ".parquet", lambda: {"s": plain()}, PLAINLY, GROUP),
    "labels, Arrow": ("labels", ".arrow", lambda: {"s": plain()}, {}, BATCH),
    "labels, stream": ("labels", ".feather", lambda: {"s": plain()}, {}, BATCH),
    "labels, numbers": ("labels", ".arrow", lambda: {"s": np.zeros(10**8, np.int64)}, {}, BATCH),
    "labels, coded": ("labels", ".arrow", lambda: {"s": same()}, {}, "read"),
    "labels, views": ("labels", ".arrow", lambda: {"s": views()}, {}, "read"),
    "labels, overlaps": ("labels", ".arrow", lambda: {"s": views(step=1)}, {}, "views: got"),
    "texts": ("texts", ".parquet", lambda: {"s": same()}, {}, "read"),
    "texts, Arrow": ("texts", ".arrow", lambda: {"s": plain()}, {}, BATCH),
    "texts, views": ("texts", ".arrow", lambda: {"s": views()}, {}, "read"),
    "vectors": ("embeddings", ".parquet", lambda: {"v": vectors(10**6, 64)}, {}, "read"),
    "vectors, Arrow": ("embeddings", ".arrow", lambda: {"v": vectors(2 * 10**6, 64)}, {}, BATCH),
    "ids": ("embeddings", ".parquet", lambda: with_ids(same()), {}, IDS),
    "ids, plain": ("embeddings", ".parquet", lambda: with_ids(plain()), PLAINLY, GROUP),
    "ids, coded": ("embeddings", ".arrow", lambda: with_ids(same()), {}, IDS),
    "ids of a table": ("ids of a table", ".parquet", lambda: {"id": same()}, {}, IDS),
    "ids of a plan": ("ids of a plan", ".parquet", lambda: keyed({"id": same()}), {}, IDS),
    "candidates": ("candidates", ".parquet", lambda: candidates(1 << 14, 1 << 10), LISTS, "read"),
    "candidates, ids": (
        "candidates", ".parquet", lambda: candidates(ROWS, 1) | {"id": same()}, {}, IDS,
    ),
    "candidates, listed ids": (
        "candidates", ".parquet",
        lambda: candidates(ROWS, 1) | {"ids": listed(same()), "id": np.arange(ROWS)}, {},
        "not in the column 'id'",
    ),
    "plan": (
        "plan", ".parquet",
        lambda: {"batch": np.arange(50_000_000) // 64, "row": np.arange(50_000_000)}, DELTAS,
        "row numbers: got",
    ),
    "negatives": (
        "negatives", ".parquet", lambda: negatives(ROWS, 2000), DELTAS, "row numbers: got",
    ),
    "records": ("materialize", ".parquet", lambda: {"s": same(600)}, {}, "read"),
    "records, lists": ("materialize", ".parquet", lambda: {"s": listed(same(600))}, {}, "read"),
    "records, Arrow": ("materialize", ".arrow", lambda: {"s": plain()}, {}, BATCH),
    "records, views": ("materialize jsonl", ".arrow", lambda: {"s": views(600)}, {}, "read"),
    "records, embed": ("embed", ".parquet", lambda: {"s": same(600)}, {}, "read"),
}  # fmt: skip


@pytest.fixture(scope="module")
def loader():
    """A process whose children load files."""
    words = [sys.executable, "-c", LOAD]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def require_proportion(loader, kind, path, rows, expected):
    """Require that a reader of a small file needs little memory, and says what is expected."""
    assert path.stat().st_size < SMALL
    print(json.dumps([kind, str(path), rows]), file=loader.stdin, flush=True)
    peak, said = json.loads(loader.stdout.readline())
    assert re.search(expected, said)
    assert len(said) < 600
    assert peak < MOST


@pytest.mark.parametrize("name", FILES)
def test_memory_is_in_proportion(loader, name, tmp_path):
    kind, suffix, columns, options, expected = FILES[name]
    path = tmp_path / f"a{suffix}"
    rows = save(path, columns(), **options)
    require_proportion(loader, kind, path, min(rows, ROWS), expected)


WIDE = b"{%s}" % b",".join(b'"n%d":1' % column for column in range(2000))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([WIDE] + [b"{}"] * 40_000, "read"),
        ([b'{"n%d":1}' % line for line in range(100_000)], "different names"),
        (
            [b"{%s}" % b",".join(b'"%x":1' % n for n in range(200_000))] + [b"{}"] * 7,
            "different names",
        ),
    ],
    ids=["one wide line", "a name in each line", "a line of names"],
)
def test_lines_of_few_bytes_and_many_columns(loader, lines, expected, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines))
    require_proportion(loader, "materialize", path, len(lines), expected)
