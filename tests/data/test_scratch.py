"""What is too large for memory is decoded into temporary files: the same embeddings."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan.data import load_embeddings
from batchplan.errors import ResourceError
from batchplan.files.scratch import scratch_array, scratch_folder
from batchplan.planners import plan
from batchplan.runtime import Runtime
from tests.observing import Observer


@pytest.fixture
def stored(tmp_path):
    """Parquet with both sides and ids, and the same sides as NPY that must be converted."""
    x, y = np.random.default_rng(0).standard_normal((2, 600, 8)).astype(np.float32)
    lists = [pa.FixedSizeListArray.from_arrays(pa.array(side.ravel()), 8) for side in (x, y)]
    table = pa.table({"x": lists[0], "y": lists[1], "id": np.arange(600)})
    pq.write_table(table, tmp_path / "pairs.parquet", row_group_size=100)
    for name, side in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", side.astype(">f4"))
    return {
        "parquet": (str(tmp_path / "pairs.parquet"), None),
        "npy": (str(tmp_path / "x.npy"), str(tmp_path / "y.npy")),
    }


@pytest.mark.parametrize(("kind", "left"), [("parquet", 150_000), ("npy", 70_000)])
def test_the_same_rows_and_plan(kind, left, stored, tmp_path, monkeypatch):
    paths, pair = stored[kind]
    whole = load_embeddings(paths, pair)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    observer = Observer()
    with monkeypatch.context() as patched:
        patched.setattr(Runtime, "memory_left", lambda *_: left)
        mapped = load_embeddings(paths, pair, observer=observer)
    assert observer.notes == [f"temporary file: 38.4 KB in {tmp_path}, until the run ends"]
    assert len(list(tmp_path.iterdir())) == 3  # it has no name
    assert mapped.fingerprint == whole.fingerprint
    assert np.array_equal(mapped.x.rows(0, 600), whole.x.rows(0, 600))
    assert (mapped.ids is None) == (whole.ids is None)
    options = {"batch_size": 8, "device": "cpu", "mega_batches": 3}
    assert np.array_equal(plan(mapped, **options).rows, plan(whole, **options).rows)


def test_enough_memory_needs_no_file(stored, monkeypatch):
    monkeypatch.setattr("batchplan.files.scratch.tempfile.TemporaryFile", None)
    load_embeddings(*stored["npy"])


def test_the_disk_is_reserved_first(tmp_path, monkeypatch):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(ResourceError, match=r"of 80 B could not be made \(No space left .* free\)"):
        scratch_array((10, 2), np.float32)


KILLED = """
import os, signal, sys
import numpy as np
from batchplan.files.scratch import scratch_array
from tests.observing import Observer
scratch_array((1000, 8), np.float32)[:] = 1
print(os.listdir(sys.argv[1]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_however_the_process_ends(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_files_go(tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    usual = Path("/var/tmp")
    if usual.is_dir() and os.access(usual, os.W_OK):
        assert scratch_folder() == usual
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    assert scratch_folder() != tmp_path / "nowhere"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert scratch_folder() == tmp_path


def test_a_system_that_reserves_no_disk_gets_zeros(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    rows = scratch_array((300_001, 3), np.float32)
    assert rows.shape == (300_001, 3)
    assert not rows.any()
    assert scratch_array((0, 3), np.float32).shape == (0, 3)
