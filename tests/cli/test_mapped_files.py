"""Files that are cut short or written to while a real command has them mapped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")

ROWS = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)

# Each way to read rows, in a process of its own, after the file was cut to its first page.
SCRIPT = """
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from batchplan.cli.process import cuts_reported
from batchplan.data import load_embeddings
from batchplan.planners import plan

x = (data := load_embeddings("x.npy", single=True)).x
os.truncate("x.npy", 4096)
every = np.arange(len(x))
READS = [
    lambda: x.take(every),
    lambda: np.array(x.rows(0, len(x))),
    lambda: torch.tensor(x.rows(0, len(x))),
    lambda: x.rows(len(x) - 1, len(x))[0, 0],
    lambda: list(ThreadPoolExecutor(3).map(lambda i: x.take(every[i:]), range(6))),
    lambda: plan(data, "gcbs", batch_size=64, device="cpu"),
    lambda: load_embeddings("x.npy", single=True),
]
for read in READS:
    if (child := os.fork()) == 0:
        with cuts_reported():
            read()
        os._exit(99)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_reading_what_was_cut_off(folder):
    np.save("x.npy", ROWS)
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    # The last finds a header that promises more than there is, and says so by an exception.
    assert done.stdout.split() == ["3"] * 6 + ["1"]
    lines = done.stderr.splitlines()[:6]
    for line in lines:
        assert line.startswith(f"error: {folder / 'x.npy'}: was cut short while it was in use")


def reading(process, of_child):
    """The process, or its child, once it has x.npy mapped; None before."""
    try:
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        born = [pid for task in tasks for pid in (task / "children").read_text().split()]
        for pid in born if of_child else [process.pid]:
            started = b"\0gcbs\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
            if started and "x.npy" in Path(f"/proc/{pid}/maps").read_text():
                return int(pid)
    except OSError:  # it ended meanwhile
        pass
    return None


def changed_while_mapped(change, *arguments, of_child=False):
    """Run a command; when it, or a child of it, has x.npy mapped, change the file."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "batchplan", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while (pid := reading(process, of_child)) is None:
            assert process.poll() is None, "it ended before it mapped the file"
            time.sleep(0.002)
        os.kill(pid, signal.SIGSTOP)
        change()
        os.kill(pid, signal.SIGCONT)
        out, said = process.communicate(timeout=300)
        return process.returncode, out, said
    finally:
        process.kill()
        process.wait()


def overwrite():
    with open("x.npy", "r+b") as file:
        np.save(file, ROWS[::-1])


def cut():
    os.truncate("x.npy", 4096)


@pytest.mark.parametrize("change", [overwrite, cut])
def test_while_a_command_runs(change, folder):
    np.save("x.npy", ROWS)
    os.utime("x.npy", (10**9, 10**9))
    status, out, said = changed_while_mapped(change, "gcbs", "x.npy", "--single", "-o", "plan.npy")
    assert (status, out) == (3, "")
    assert said.startswith("error: ")
    assert "x.npy: was" in said
    assert said.count("\n") == 1
    assert os.listdir() == ["x.npy"]


def test_while_a_child_of_compare_runs(folder, monkeypatch):
    np.save("x.npy", ROWS)
    (scratch := folder / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    arguments = ["compare", "x.npy", "--single", "--planners", "gcbs", "--folder", "kept"]
    status, out, said = changed_while_mapped(cut, *arguments, of_child=True)
    assert (status, out) == (3, "")
    assert "x.npy: was written to while it was in use (got 4096 bytes" in said
    assert not list(scratch.iterdir())
    assert sorted(os.listdir()) == ["scratch", "x.npy"]
