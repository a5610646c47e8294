"""Files that are written to, replaced or removed while they are mapped."""

import os
import time

import numpy as np
import pytest

from batchplan import InputError, evaluate
from batchplan.data import load_embeddings
from batchplan.data.npy import FORMAT
from batchplan.data.wanted import Wanted
from batchplan.guard.describe import describe
from batchplan.planners import PLANNERS, mine_negatives, plan
from batchplan.plans import Batching, Plan
from batchplan.refinement import refine
from batchplan.report import write_report
from batchplan.runtime import Runtime

X, Y = np.random.default_rng(0).standard_normal((2, 40, 6)).astype(np.float32)
MINERS = ("hardneg", "scns")
CHANGED = r"/y\.npy: was written to while it was in use"


def saved(path, array):
    """A file that was written long ago: the clock of a file system may tick 250 times a second."""
    np.save(path, array)
    os.utime(path, (10**9, 10**9))


@pytest.fixture
def data(tmp_path):
    """Embeddings that are mapped from x.npy and y.npy of the folder."""
    saved(tmp_path / "x.npy", X)
    saved(tmp_path / "y.npy", Y)
    return load_embeddings(tmp_path / "x.npy", tmp_path / "y.npy")


def overwrite(path):
    """Write the rows in another order into the file."""
    rows = np.load(path)[::-1]
    with path.open("r+b") as file:
        np.save(file, rows)


class Overwriting:
    """An observer that writes to a file when the first stage begins."""

    def __init__(self, path):
        self.path = path
        self.done = False

    def start(self, stage, total):
        if not self.done:
            overwrite(self.path)
        self.done = True

    def advance(self, stage, steps):
        pass

    def finish(self, stage, seconds):
        pass

    def note(self, name, value):
        pass


@pytest.mark.parametrize("planner", [one for one in PLANNERS if one not in MINERS])
def test_written_to_while_planning(planner, data, tmp_path):
    observer = Overwriting(tmp_path / "y.npy")
    if planner in ("random", "shuffled"):
        overwrite(tmp_path / "y.npy")  # they have no stages: nothing is read
    with pytest.raises(InputError, match=CHANGED) as error:
        plan(data, planner=planner, batch_size=8, device="cpu", observer=observer)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("planner", MINERS)
def test_written_to_while_mining(planner, data, tmp_path):
    options = {"device": "cpu", "observer": Overwriting(tmp_path / "y.npy")}
    with pytest.raises(InputError, match=CHANGED):
        mine_negatives(data, planner=planner, batch_size=8, **options)


MADE = Plan.cut(np.arange(40), Batching(8), num_rows=40)
MEASURING = {
    "refine": lambda data, one, _: refine(MADE, data, device="cpu", observer=one.observer),
    "evaluate": lambda data, one, _: evaluate(MADE, data, device="cpu", observer=one.observer),
    "describe": lambda data, one, _: describe(data, one),
    "report": lambda data, one, folder: write_report(
        {"a": MADE}, data, folder / "a.html", device="cpu", observer=one.observer
    ),
}


@pytest.mark.parametrize("work", MEASURING)
def test_written_to_while_measuring(work, data, tmp_path):
    runtime = Runtime("cpu", observer=Overwriting(tmp_path / "y.npy"))
    with pytest.raises(InputError, match=CHANGED):
        MEASURING[work](data, runtime, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"x.npy", "y.npy"}


def test_what_was_converted_is_in_memory(tmp_path):
    saved(tmp_path / "wide.npy", X.astype(np.float64))
    wide = load_embeddings(tmp_path / "wide.npy", cast=True)
    overwrite(tmp_path / "wide.npy")
    plan(wide, planner="random", batch_size=8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_changed_between_header_and_rows(dtype, tmp_path):
    path = tmp_path / "x.npy"
    for change in (overwrite, lambda path: os.truncate(path, 400)):
        saved(path, X.astype(dtype))
        (source,) = FORMAT.sources([path], "x", Wanted(), cast=True)
        change(path)
        with pytest.raises(InputError, match=r"x\.npy: was written to while it was in use"):
            source.read(lambda _rows: None, np.empty)


def test_an_old_time_hides_nothing(data, tmp_path):
    time.sleep(0.05)  # more than a tick of the file system
    overwrite(tmp_path / "y.npy")
    os.utime(tmp_path / "y.npy", (10**9, 10**9))
    with pytest.raises(InputError, match=CHANGED):
        data.require_unchanged()


def test_what_leaves_the_rows_alone_is_no_change(data, tmp_path, monkeypatch):
    data.require_unchanged()
    path = tmp_path / "y.npy"
    os.link(path, tmp_path / "link.npy")
    path.chmod(0o400)
    data.require_unchanged()
    monkeypatch.chdir("/")
    data.require_unchanged()


def test_a_file_that_was_replaced_or_removed_is_still_mapped(data, tmp_path):
    fingerprint, rows = data.fingerprint, data.y.rows(0, 40).copy()
    np.save(tmp_path / "new.npy", Y[::-1])
    (tmp_path / "new.npy").replace(tmp_path / "y.npy")
    (tmp_path / "x.npy").unlink()
    data.require_unchanged()
    assert (
        plan(data, planner="gcbs", batch_size=8, device="cpu").metadata.fingerprint == fingerprint
    )
    np.testing.assert_array_equal(data.y.rows(0, 40), rows)


def test_relative_names(tmp_path, monkeypatch):
    saved(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    data = load_embeddings("x.npy")
    monkeypatch.chdir("/")
    overwrite(tmp_path / "x.npy")
    with pytest.raises(InputError, match=r"^x\.npy: was written to"):
        data.require_unchanged()
