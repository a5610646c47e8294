"""What surrounds a command: streams, settings and files of others."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COMMAND = [sys.executable, "-m", "batchplan"]


@pytest.fixture(autouse=True)
def data(npy, done):
    done("random", "x.npy", "--single", "-b", 8, "-q", "-o", "p.npy")


def shell(*arguments, **options):
    """A real process; (status, stdout, stderr)."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300, **options}
    done = subprocess.run([*COMMAND, *arguments], text=True, **given)
    return done.returncode, done.stdout, done.stderr


COMMANDS = {
    "random": ["random", "x.npy", "--single", "-b", "8", "-o", "new.npy"],
    "gcbs": ["gcbs", "x.npy", "--single", "-b", "8", "-o", "new.npy"],
    "partition": ["partition", "x.npy", "--single", "-b", "8", "-o", "new.npy"],
    "evaluate": ["evaluate", "p.npy", "x.npy", "--single"],
    "report": ["report", "p.npy", "x.npy", "--single", "-o", "new.html"],
}


# Streams


@pytest.mark.parametrize("command", ["evaluate", "inspect"])
def test_a_result_has_nowhere_to_go(command):
    arguments = COMMANDS["evaluate"] if command == "evaluate" else ["inspect", "x.npy", "--single"]
    status, _, err = shell(*arguments, stdout=None, preexec_fn=lambda: os.close(1))
    assert (status, len(err.splitlines())) == (5, 1)
    assert err.startswith("error: standard output: is closed")


# Settings


@pytest.mark.parametrize("number", ["0", "-1", "two", "99999999", ""])
def test_a_number_of_threads_that_is_none(number, refused, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", number)
    parts = [f"NUMBA_NUM_THREADS: got '{number}' in the environment, expected a number from 1 to"]
    refused("random", "x.npy", "--single", "-b", 8, parts=parts)


def test_a_setting_that_numba_refuses_on_the_way():
    work = "import numba; from batchplan.__main__ import main; main(numba.get_num_threads)"
    environment = os.environ | {"NUMBA_THREADING_LAYER": "none"}
    done = subprocess.run(
        [sys.executable, "-c", work], env=environment, text=True, capture_output=True
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: numba: got NUMBA_")
    assert "NUMBA_THREADING_LAYER=none" in done.stderr


def test_settings_of_matplotlib_are_no_matter_of_ours():
    status, _, err = shell(*COMMANDS["report"], "-q", env=os.environ | {"MPLBACKEND": "none"})
    assert (status, err) == (0, "")


# Folders


def test_files_of_the_working_directory_are_no_modules():
    for name in ("random", "typer", "numpy", "secrets"):
        Path(f"{name}.py").write_text("raise SystemExit('mine')")
    status, out, err = shell("inspect", "x.npy", "--single")
    assert (status, err) == (0, "")
    assert "rows" in out


def test_the_working_directory_may_be_gone(folder):
    inspect = f"{' '.join(COMMAND)} inspect {folder}/x.npy --single"
    script = f"mkdir gone; cd gone; rmdir ../gone; exec {inspect}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# Long lines


def test_long_names_make_no_long_lines(refused, run):
    parts = ["error: aaa", " … ", "no such file"]
    assert len(refused("inspect", f"{'a' * 200}/" * 19, parts=parts)) < 1010
    assert len(run("gcbs", "x.npy", "--single", "--tail", "b" * 5000).stderr) < 1500


def test_warnings_take_one_line():
    script = (
        "import warnings, batchplan.data as data; old = data.load_embeddings\n"
        "def load(*given, **more):\n"
        "    warnings.warn('first\\nsecond')\n"
        "    return old(*given, **more)\n"
        "data.load_embeddings = load\n"
        "from batchplan.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "inspect", "x.npy", "--single"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "warning: first\\nsecond\n")
    assert np.load("x.npy").shape == (48, 8)
