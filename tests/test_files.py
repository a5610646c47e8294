"""Files that users name are read as far as they should be: no pipe is waited for, no device."""

import os
import signal

import numpy as np
import pytest

from batchplan import InputError, load_embeddings
from batchplan.comparison import read_settings
from batchplan.data import load_labels
from batchplan.files.reading import read_regular
from batchplan.gates import Baseline
from batchplan.plans import Plan, is_plan


@pytest.fixture(autouse=True)
def no_hang():
    """A read that never ends fails."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture
def data():
    return load_embeddings(np.eye(8, dtype=np.float32))


def unread(tmp_path, name):
    """Paths that no read of a file ends at."""
    os.mkfifo(tmp_path / f"fifo{name}")
    (tmp_path / f"zero{name}").symlink_to("/dev/zero")
    return [tmp_path / f"fifo{name}", tmp_path / f"zero{name}"]


def test_only_regular_files_are_read(tmp_path):
    for path in (*unread(tmp_path, ""), tmp_path):
        with pytest.raises(InputError, match="is not a regular file, expected a note"):
            read_regular(path, 10, "a note")
    with pytest.raises(InputError, match="none: no such file"):
        read_regular(tmp_path / "none", 10, "a note")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="loop: cannot be read"):
        read_regular(tmp_path / "loop", 10, "a note")


def test_no_more_is_read_than_a_file_may_have(tmp_path):
    path = tmp_path / "note"
    path.write_bytes(b"0123456789")
    assert read_regular(path, 10, "a note") == b"0123456789"
    with pytest.raises(InputError, match="note: more than 0 MiB, too much for a note"):
        read_regular(path, 9, "a note")
    os.truncate(path, 1 << 40)  # a hole takes no room
    with pytest.raises(InputError, match="note: more than 1 MiB"):
        read_regular(path, 1 << 20, "a note")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".txt", ".jsonl", ".parquet"])
def test_plans(tmp_path, suffix):
    for path in unread(tmp_path, suffix):
        with pytest.raises(InputError, match="is not a regular file"):
            Plan.load(path, batch_size=4)
        assert not is_plan(path)


def test_metadata_beside_a_plan(tmp_path):
    path, sidecar = tmp_path / "p.npy", tmp_path / "p.npy.json"
    np.save(path, np.arange(8))
    for wrong in unread(tmp_path, ".json"):
        sidecar.symlink_to(wrong)
        with pytest.raises(InputError, match=r"p\.npy\.json: is not a regular file"):
            Plan.load(path)
        assert not is_plan(path)
        sidecar.unlink()
    sidecar.touch()
    os.truncate(sidecar, 1 << 40)
    with pytest.raises(InputError, match=r"p\.npy\.json: more than 16 MiB"):
        Plan.load(path)
    assert not is_plan(path)


def test_files_of_gates_and_comparisons(tmp_path, data):
    for path in unread(tmp_path, ".json"):
        for read, *given in (
            (Baseline.load, path),
            (read_settings, None, str(path), {}),
            (load_labels, "kind", data, path),
        ):
            with pytest.raises(InputError, match=f"{path}: is not a regular file"):
                read(*given)
