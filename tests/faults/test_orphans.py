"""When a process is killed, those that it started end within seconds, whatever they do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_compare import runs

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def descendants(process):
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def test_no_process_outlives_the_one_that_started_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((3000, 16), np.float32))
    command = ["-m", "batchplan", "compare", "x.npy", "--single", "--folder", "kept"]
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        while not (list(tmp_path.glob("kept/*.npz")) and descendants(process.pid)):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        started = descendants(process.pid)
        process.kill()
    until = time.monotonic() + 60
    while any(map(runs, started)) and time.monotonic() < until:
        time.sleep(0.05)
    left = list(filter(runs, started))
    for orphan in left:
        os.kill(orphan, signal.SIGKILL)
    assert not left
