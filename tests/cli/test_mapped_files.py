"""A file that is written to while a real command has it mapped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")

ROWS = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)


# It stops when its graph begins for the first time, until it is continued.
STOPS = """
import os, signal
from batchplan.cli import console
stages = []
def start(self, stage, total, old=console.Watch.start):
    old(self, stage, total)
    stages.append(stage)
    if stage == "graph" and stages.count(stage) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
console.Watch.start = start
from batchplan.__main__ import main
main()
"""


def changed_while_mapped(change, *arguments):
    """Run a command; when it has x.npy mapped, change the file."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", STOPS, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert ended.si_code == os.CLD_STOPPED, process.communicate()
        assert "x.npy" in Path(f"/proc/{process.pid}/maps").read_text()
        change()
        os.kill(process.pid, signal.SIGCONT)
        out, said = process.communicate(timeout=120)
        return process.returncode, out, said
    finally:
        process.kill()
        process.wait()


def overwrite():
    with open("x.npy", "r+b") as file:
        np.save(file, ROWS[::-1])


def test_while_a_command_runs(folder):
    np.save("x.npy", ROWS)
    os.utime("x.npy", (10**9, 10**9))
    command = "gcbs", "x.npy", "--single", "-o", "plan.npy"
    status, out, said = changed_while_mapped(overwrite, *command)
    assert (status, out) == (3, "")
    assert said.startswith("error: ")
    assert "x.npy: was" in said
    assert said.count("\n") == 1
    assert os.listdir() == ["x.npy"]
