"""The real command, killed 250 times at random moments of its save: the plan loads, or a mix of its
two files is refused."""

import os
import random
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from batchplan import InputError
from batchplan.plans import Plan

ROWS = 20_000
# Runs the first command line that it reads, which imports what the others need, and each of those
# in a copy of itself, so that a run costs no start of Python. The copy sets an alarm when it opens
# the first file that it writes. Nothing handles the alarm, so it ends the process as SIGKILL does;
# no other process could strike a save of a millisecond, and miss no part of it. A copy that has
# saved tells how long that took, and ends as the command does, without what Python does at exit.
SERVER = """
import os, signal, sys, time
from typer.main import get_command
from batchplan.cli.app import app

def save_begins(event, details):
    global began
    if event == "open" and str(details[0]).endswith(".tmp") and not began:
        began = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, float(delay))

command = get_command(app)
command(sys.stdin.readline().split(), standalone_mode=False)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        began, (delay, *arguments) = 0, line.split()
        sys.addaudithook(save_begins)
        try:
            command(arguments, prog_name="batchplan")
        except SystemExit as ended:
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(time.perf_counter() - began, end=" ", flush=True)
            os._exit(ended.code)
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

    def run(self, command: str, delay: float = 0) -> tuple[int, float]:
        """Its exit status, and the seconds that its save took, infinity if it was killed.

        Args:
            command: without the name of the program.
            delay: seconds after the begin of the save at which it is killed, 0 for never.
        """
        self._send(f"{delay:f} {command}")
        *seconds, status = self._process.stdout.readline().split()
        return int(status), float(*seconds or ["inf"])

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _send(self, line: str) -> None:
        self._process.stdin.write(line.encode() + b"\n")


@pytest.fixture
def server(folder, suffix):
    """In a folder with embeddings."""
    np.save("x.npy", np.random.default_rng(0).standard_normal((ROWS, 2)).astype(np.float16))
    started = Server(f"random x.npy -q -o first{suffix}")
    yield started
    started.close()


@contextmanager
def refusal_of_a_mix(suffix):
    """Allow the error of a plan that was killed in the microseconds between two renames."""
    try:
        yield
    except InputError as error:
        if suffix == ".parquet" or "a save was cut short" not in str(error):
            raise


KILLS = 50 if "CI" in os.environ else 20


@pytest.mark.parametrize(
    ("suffix", "kills"),
    [(".npy", 2 * KILLS), (".jsonl", KILLS), (".txt", KILLS), (".parquet", KILLS)],
)
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
        assert status in (0, -signal.SIGALRM)
        killed += status != 0
        with refusal_of_a_mix(suffix):
            assert Plan.load(path).rows.tobytes() in known
    assert server.run(command + "0")[0] == 0
    assert Plan.load(path).rows.tobytes() == known[0]
