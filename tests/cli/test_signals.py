"""Signals at any moment: while libraries load, of a terminal that is closed, and of `compare`."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_compare import children_of, runs

pytestmark = pytest.mark.usefixtures("interruptible")
COMMAND = [sys.executable, "-m", "batchplan"]

# Press Ctrl-C as soon as a module is asked for.
PRESS = """
import os, signal, sys
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
from batchplan.__main__ import main
sys.argv[1:] = ["gcbs", "x.npy", "--single", "-b", "8"]
main()
"""


@pytest.mark.parametrize(
    "module", ["batchplan.cli.process", "typer", "batchplan.planners", "numpy", "torch", "numba"]
)
def test_control_c_while_a_module_loads(module, npy, snapshot):
    before = snapshot()
    done = subprocess.run(
        [sys.executable, "-c", PRESS.format(module=module)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert snapshot() == before


# A library drops an interrupt while it loads, as transformers does at times, and loads for long.
DROP = PRESS.replace(
    "os.kill(os.getpid(), signal.SIGINT)",
    """
            import time
            try:
                os.kill(os.getpid(), signal.{number})
            except KeyboardInterrupt:
                print("dropped", flush=True)
            time.sleep(60)""",
)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_that_a_library_drops(number, npy, snapshot):
    before, script = snapshot(), DROP.format(module="batchplan.planners", number=number)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "dropped\n", "interrupted\n")
    assert snapshot() == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_children_end_with_a_parent_that_is_killed(folder):
    np.save("x.npy", np.random.default_rng(0).standard_normal((2000, 16), np.float32))
    with subprocess.Popen(
        [*COMMAND, "compare", "x.npy", "--planners", "gcbs", "--folder", "kept"], stderr=-1
    ) as process:
        try:
            while not (found := children_of(process)):
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.01)
        finally:
            process.kill()
    deadline = time.monotonic() + 60
    while runs(found[0]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_interrupts_unless_it_is_ignored(number, npy):
    """SIGHUP, of a closed terminal, which nohup ignores; SIGINT, which a shell ignores in its
    background."""
    script = "import os\n"
    script += "from batchplan.cli import console\n"
    script += f"console.Watch.start = lambda *_: os.kill(os.getpid(), {number:d})\n"
    script += "console.Watch.finish = lambda *_: None\n"
    script += "console.Watch.advance = lambda *_: None\n"
    script += "from batchplan.__main__ import main; main()"
    command = [sys.executable, "-c", script, "inspect", "x.npy", "--single"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    done = subprocess.run(
        command,
        capture_output=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_thread_that_hangs_keeps_nobody_alive(npy):
    """As a library's initialisation may, in a thread of ours."""
    script = """
import os, signal, time
import torch
from batchplan.threads import single_threads
torch.set_num_threads(2)
from batchplan.cli import console
def start(*_):
    with single_threads() as pool:
        stuck = pool.submit(time.sleep, 600)
        os.kill(os.getpid(), signal.SIGTERM)
        stuck.result()
console.Watch.start = start
from batchplan.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "inspect", "x.npy", "--single"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
