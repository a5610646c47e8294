"""Frameworks whose packages do not go with the others, each with a folder of its own that
`make test-frameworks` fills; seen at the training step."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

from .shown import epochs_of
from .texts import save_model

SIZES = pytest.mark.parametrize(("devices", "workers"), [(1, "2"), (2, "0"), (4, "0")])


def run(package, program, devices, folder, *arguments):
    """What ``train`` of a program in tests/frameworks/apart returns in each process, by rank."""
    packages = Path(os.environ.get("APART", sys.prefix)) / f"apart-{package}"
    if not packages.is_dir():
        pytest.skip(f"no {packages}: make test-frameworks installs {package} there")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {**os.environ, "PYTHONPATH": f"{packages}:{ROOT}", "NUMBA_NUM_THREADS": "1"}
    if devices > 1:
        known |= {"WORLD_SIZE": str(devices), "LOCAL_WORLD_SIZE": str(devices)}
        known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [sys.executable, "-m", "tests.frameworks.apart", program, folder, *arguments]
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(words, env=known, stdout=log, stderr=log, start_new_session=True)
        try:
            ended = process.wait(150)
        except subprocess.TimeoutExpired:
            ended = "after 150 s it still ran"
        finally:
            with suppress(ProcessLookupError):  # all of its processes have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert ended == 0, f"{ended}: {Path(log.name).read_text()}"
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(devices)]


@SIZES
def test_open_clip(devices, workers, tmp_path):
    seen = run("open_clip", "clip", devices, tmp_path, workers)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert len(seen[0]) == 2 * (47 // (4 * devices))


@SIZES
def test_pylate(devices, workers, tmp_path):
    save_model(tmp_path / "model")
    seen = run("pylate", "late", devices, tmp_path, workers)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert sum(map(len, seen[0])) == 2 * -(-47 // devices)


@SIZES
def test_tevatron(devices, workers, tmp_path):
    save_model(tmp_path / "model")
    seen = run("tevatron", "dense", devices, tmp_path, workers)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert len(seen[0]) == 2 * (47 // (4 * devices))


@SIZES
def test_ms_swift(devices, workers, tmp_path):
    seen = run("ms_swift", "instruct", devices, tmp_path, workers)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert len(seen[0]) == 2 * (47 // (4 * devices))


@SIZES
def test_nemo_automodel(devices, workers, tmp_path):
    seen = run("nemo_automodel", "automodel", devices, tmp_path, workers)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert len(seen[0]) == 2 * (47 // (4 * devices))


@pytest.mark.parametrize("how", ["loop", "trainer"])
@pytest.mark.parametrize("devices", [2, 4])
def test_zero_stage_3(devices, how, tmp_path):
    """No process has the whole model, so that all embed in the same calls."""
    seen = run("deepspeed", "zero", devices, tmp_path, how)
    assert seen == epochs_of(tmp_path / "plans", devices, 2)
    assert len(seen[0]) == 2 * (47 // (4 * devices))
