"""A file that is written to while a real command has it mapped."""

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


def has_it_mapped(process):
    """Whether the process has x.npy mapped."""
    try:
        return "x.npy" in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:  # it ended meanwhile
        return False


def changed_while_mapped(change, *arguments):
    """Run a command; when it has x.npy mapped, change the file."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "batchplan", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not has_it_mapped(process):
            assert process.poll() is None, "it ended before it mapped the file"
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGSTOP)
        change()
        os.kill(process.pid, signal.SIGCONT)
        out, said = process.communicate(timeout=300)
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
