"""The real command, killed in the middle of a plan that it keeps, goes on to the same bytes."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from batchplan import OutputError, load_embeddings, plan
from batchplan.comparison import compare
from batchplan.files.atomic import output_errors
from batchplan.files.npy import write_npy

from .faults import Fault, Injector

MEGA_BATCHES, FINISHED = 12, 3
# It kills itself when a mega-batch is written, but has not got its name.
KILLED = f"""
import os, signal, sys
names = 0
def rename(event, details):
    global names
    if event == "os.rename" and str(details[1]).endswith(".npz"):
        names += 1
        if names > {FINISHED}:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(rename)
from batchplan.__main__ import main
main()
"""


@pytest.fixture
def data(tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 3_000, 16)).astype(np.float32)
    for name, side in zip("xy", x, strict=True):
        np.save(tmp_path / f"{name}.npy", side)
    return tmp_path


def started(folder, plan, *more, program):
    command = [*program, "partition", "x.npy", "--pair", "y.npy", "-o", plan, "-b", "8"]
    command += ["--mega-batches", str(MEGA_BATCHES), "--refine", "1", *more]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def done(data, programs):
    def done(plan, *more):
        process = started(data, plan, *more, program=[programs / "batchplan"])
        said = process.communicate()[1]
        assert process.returncode == 0, said
        return said

    return done


def test_a_killed_run_goes_on(data, done):
    done("whole.npy")
    kept = data / "kept"
    killed = started(
        data, "resumed.npy", "--resume", "kept", program=[sys.executable, "-c", KILLED]
    )
    said = killed.communicate()[1]
    assert killed.returncode == -signal.SIGKILL, said
    finished = {path: path.stat().st_mtime_ns for path in kept.glob("*.npz")}
    assert len(finished) == FINISHED
    assert [path for path in kept.iterdir() if path.name.startswith(".")]
    assert not (data / "resumed.npy").exists()
    said = done("resumed.npy", "--resume", "kept", "-v")
    assert f"resumed: {FINISHED} of {MEGA_BATCHES} mega-batches were done" in said
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for suffix in ("", ".json"):
        whole, resumed = (data / f"{name}.npy{suffix}" for name in ("whole", "resumed"))
        assert whole.read_bytes() == resumed.read_bytes()


def test_no_folder_stays_if_nothing_could_be_written(data, monkeypatch):
    (data / "out").mkdir()
    new, x, y = data / "out" / "new", data / "x.npy", data / "y.npy"
    disk = Injector(monkeypatch, data / "out")
    full = Fault(errno.ENOSPC, ever=True)

    def partition():
        embeddings = load_embeddings(x, y)
        plan(embeddings, planner="partition", mega_batches=12, refine=1, resume=str(new))

    def comparing():
        compare(x, y, planners=["random"], folder=new)

    for work in (partition, comparing):
        disk.arm("open", 1, full)
        with pytest.raises(OutputError, match="No space left on device"):
            work()
        assert disk.fired
        assert not new.exists()
        new.mkdir()  # what was there stays
        with pytest.raises(OutputError, match="No space left on device"):
            work()
        new.rmdir()
        disk.disarm()
    partition()
    assert len(list(new.iterdir())) == MEGA_BATCHES


def test_why_a_full_disk_takes_no_array():
    array = np.zeros(5000, [("row", "<i8"), ("x", "<f2", (3,))])
    with (
        pytest.raises(OutputError, match=r"full: could not be written \(No space left on device\)"),
        output_errors(Path("/dev/full")),
        open("/dev/full", "wb") as full,
    ):
        write_npy(full, array)
