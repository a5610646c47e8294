"""The real command, killed 200 times at random moments of its save: the plan always loads."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

from batchplan.plans import Plan

ROWS = 20_000
# Runs the first command line that it reads, which imports what the others need, and each of those
# in a copy of itself, so that a run costs no start of Python.
SERVER = """
import os, sys
from batchplan.cli.app import app
app(sys.stdin.readline().split(), standalone_mode=False)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        app(line.split(), prog_name="batchplan")
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Server:
    """The command, run again and again, and killed if that is asked for."""

    def __init__(self, first: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._send(first)

    def run(self, command: str, delay: float | None = None) -> tuple[int, float]:
        """Its exit status, and the seconds from the begin of its save to its end.

        Args:
            command: without the name of the program.
            delay: seconds after the begin of the save at which it is killed.
        """
        before = saves()
        self._send(command)
        child = int(self._process.stdout.readline())
        while not (began := saves() - before) and not self._has_ended():
            pass
        since = time.monotonic()
        if began and delay is not None:
            time.sleep(delay)
            with suppress(ProcessLookupError):  # it was faster, and the server has reaped it
                os.kill(child, signal.SIGKILL)
        status = int(self._process.stdout.readline())
        return status, time.monotonic() - since

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _send(self, command: str) -> None:
        self._process.stdin.write(command.encode() + b"\n")

    def _has_ended(self) -> bool:
        return bool(select.select([self._process.stdout], [], [], 0)[0])


def saves():
    """The files that are being written, or were when their writer was killed."""
    return {name for name in os.listdir() if name.endswith(".tmp")}


@pytest.fixture
def server(folder):
    """In a folder with embeddings."""
    np.save("x.npy", np.random.default_rng(0).standard_normal((ROWS, 2)).astype(np.float16))
    started = Server("random x.npy -q -o first.npz")
    yield started
    started.close()


@pytest.mark.parametrize(("suffix", "kills"), [(".npy", 100), (".jsonl", 50), (".txt", 50)])
def test_a_plan_loads_after_a_kill(server, suffix, kills):
    path = f"plan{suffix}"
    command = f"random x.npy -q -f -o {path} --seed "
    known = []
    for seed in "01":
        status, seconds = server.run(command + seed)
        assert status == 0
        known.append(Plan.load(path).rows.tobytes())
    randomly, killed = random.Random(0), 0
    while killed < kills:
        status, _ = server.run(command + str(killed % 2), randomly.uniform(0, seconds))
        assert status in (0, -signal.SIGKILL)
        killed += status != 0
        assert Plan.load(path).rows.tobytes() in known
    assert server.run(command + "0")[0] == 0
    assert sorted(os.listdir()) == sorted(["first.npz", path, f"{path}.json", "x.npy"])
