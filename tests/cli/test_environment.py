"""What surrounds a command: settings, files of others and warnings."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "batchplan"]


@pytest.fixture(autouse=True)
def data(npy, done):
    done("random", "x.npy", "--single", "-b", 8, "-q", "-o", "p.npy")


def shell(*arguments, **options):
    """A real process; (status, stdout, stderr)."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300, **options}
    done = subprocess.run([*COMMAND, *arguments], text=True, **given)
    return done.returncode, done.stdout, done.stderr


# Settings


def test_settings_of_matplotlib_are_no_matter_of_ours():
    report = ["report", "p.npy", "x.npy", "--single", "-o", "new.html", "-q"]
    status, _, err = shell(*report, env=os.environ | {"MPLBACKEND": "none"})
    assert (status, err) == (0, "")


@pytest.mark.parametrize("options", [["-OO"], ["-W", "error"], []])
def test_ways_to_start_python(options):
    """Without docstrings and asserts; with warnings as errors; without a home or any setting."""
    bare = {} if options else {"env": {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}}
    done = subprocess.run(
        [COMMAND[0], *options, *COMMAND[1:], "gcbs", "x.npy", "--single", "-b", "8", "-o", "q.npy"],
        capture_output=True, text=True, **bare,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


# Memory


@pytest.mark.parametrize("megabytes", [80, 150, 300, 500, 700])
def test_a_library_that_lacks_memory_is_no_failed_check(megabytes):
    """Whatever fails, at an import or later: torch, numba, scipy, pyarrow, a thread."""
    limit = megabytes << 20
    status, out, err = shell(
        *["check", "p.npy", "x.npy", "--single", "--fail-under", "loss_train=0", "-q"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert status in (0, 4), err
    assert "Traceback" not in err
    if status:
        assert out == ""
        assert err.count("error: ") <= 1


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


# Warnings


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
