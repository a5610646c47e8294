"""Exit statuses other than 0 and 3: usage, no memory or device, failed writes, interrupts."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from batchplan.planners import PLANNERS, Planner
from batchplan.planners.random import RandomOptions

COMMAND = [sys.executable, "-m", "batchplan"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["plan"],
        ["--nothing"],
        ["gcbs"],
        ["evaluate", "x.npy"],
        ["inspect"],
        ["gcbs", "x.npy", "--single", "--nothing"],
        ["random", "x.npy", "--single", "--quantile", "0.9"],
        ["gcbs", "x.npy", "--single", "--quantile", "most"],
        ["gcbs", "x.npy", "--single", "--neighbors", "1.5"],
        ["gcbs", "x.npy", "--single", "--batch-size", ""],
        ["gcbs", "x.npy", "--single", "--seed", "x"],
        ["gcbs", "x.npy", "--single", "--tail", "cut"],
        ["gcbs", "x.npy", "--single", "--similarity", "l2"],
        ["gcbs", "x.npy", "--single", "--batch-order", "sorted"],
        ["gcbs", "x.npy", "--single", "--output"],
        ["gcbs", "x.npy", "--single", "--json", "-o", "-"],
        ["evaluate", "p.npy", "x.npy", "--single", "--temperature", "warm"],
    ],
    ids=" ".join,
)
def test_usage_errors(arguments, npy, run, snapshot):
    before = snapshot()
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == "" or not arguments  # without any, the help is shown
    assert "Error: " in result.stderr or not arguments
    assert "Traceback" not in result.output
    assert snapshot() == before


def test_a_usage_error_names_the_option_and_its_choices(run, npy):
    said = run("gcbs", *npy, "--tail", "cut").stderr
    for part in ("--tail", "cut", "keep", "drop", "pad"):
        assert part in said
    assert "--json" in run("gcbs", *npy, "--json", "-o", "-").stderr
    assert "--nothing" in run("gcbs", *npy, "--nothing").stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_no_cuda_device(device, npy, refused):
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    parts = [f"device {device}: torch", "sees no CUDA device here; use --device cpu"]
    refused("gcbs", *npy, "-b", 8, "--device", device, code=4, parts=parts)
    refused("evaluate", "p.txt", *npy, "-b", 8, "--device", device, code=4, parts=parts)


def test_no_such_cuda_device(npy, refused, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    parts = ["device cuda:2: there are 2 CUDA devices here, numbered from 0; use --device cuda"]
    refused("gcbs", *npy, "-b", 8, "--device", "cuda:2", code=4, parts=parts)


@pytest.mark.parametrize("memory", ["1MB", "64KiB", "1", "1.5 MB"])
def test_a_graph_that_does_not_fit(memory, npy, refused):
    parts = [
        "edges of the similarity graph of 48 rows x 8 need",
        "is left",
        "raise --memory, or use fewer",
    ]
    refused("gcbs", *npy, "-b", 8, "--memory", memory, code=4, parts=parts)


def test_an_evaluation_that_does_not_fit(npy, refused):
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    parts = ["evaluate: 48 rows need", "is left; raise --memory, or evaluate a plan of fewer"]
    refused("evaluate", "p.txt", *npy, "-b", 8, "--memory", "1MB", code=4, parts=parts)


def test_embeddings_that_do_not_fit(parquet, refused):
    parts = ["the embeddings need", "is left; raise --memory, or save them as"]
    for command in (["random", "-b", 8], ["inspect"]):
        refused(*command, parquet, "--memory", "1KB", code=4, parts=parts)


@pytest.mark.parametrize("library", ["python", "numpy", "torch"])
def test_running_out_of_memory_on_the_way(library, npy, refused, monkeypatch):
    def make(embeddings, options, runtime):
        if library == "python":
            raise MemoryError
        return np.ones(1 << 58) if library == "numpy" else torch.ones(1 << 58)

    monkeypatch.setitem(PLANNERS, "random", Planner(make, RandomOptions, "", ""))
    refused("random", *npy, "-b", 8, code=4, parts=["out of memory", "--neighbors"])


# Writes that fail


def shell(arguments, **options):
    """A real process; (status, stdout, stderr)."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, **options
    )
    return done.returncode, done.stdout, done.stderr


def no_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.parametrize("name", ["p.npy", "p.parquet"])
def test_a_full_disk_keeps_the_old_file(name, npy, snapshot):
    Path(name).write_text("old")
    before = snapshot()
    status, out, err = shell(["random", *npy, "-b", 8, "-f", "-o", name], preexec_fn=no_room)
    assert (status, out) == (5, "")
    assert err.startswith(f"error: {name}")
    assert "could not be written" in err
    assert "are unchanged" in err
    assert len(err.splitlines()) == 1
    assert snapshot() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["random", "x.npy", "--single", "-q", "-b", "8", "-o", "-"], ""),
        (["random", "x.npy", "--single", "-b", "8", "--json"], "1"),
        (["inspect", "p.txt", "-b", "8"], ""),
    ],
)
def test_a_standard_output_that_takes_nothing(arguments, unbuffered, npy):
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=-1, text=True, env=environment
        )
    assert done.returncode == 5
    assert done.stderr.startswith("error: ")
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["random", "x.npy", "--single", "-q", "-b", "8", "-o", "-"], ""),
        (["inspect", "p.txt", "-b", "8"], "1"),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_failure(arguments, unbuffered, npy):
    Path("p.txt").write_text("\n".join(map(str, range(48))))
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=writing, stderr=-1, text=True, env=environment
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verdict_that_nobody_reads_stands(npy, done):
    done("random", "x.npy", "--single", "-q", "-b", 8, "-o", "r.npy")
    words = ["check", "r.npy", "x.npy", "--single", "--fail-under", "loss_train=99", "-q"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run([*COMMAND, *words], stdout=writing, stderr=-1, text=True, env=environment)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (1, "")


# Interrupts


# Ctrl-C when a part of a stage is done, while other threads compute the next parts.
PRESS = """
import os, signal, sys
from batchplan.cli import console
def advance(self, stage, steps):
    if stage == "graph":
        os.kill(os.getpid(), signal.SIGINT)
console.Watch.advance = advance
from batchplan.__main__ import main
main()
"""


@pytest.mark.usefixtures("interruptible")
def test_control_c_leaves_nothing_behind(folder, snapshot):
    np.save("x.npy", np.random.default_rng(0).standard_normal((10_000, 64), np.float32))
    Path("p.npy").write_text("old")
    before = snapshot()
    arguments = ["gcbs", "x.npy", "--single", "-f", "-o", "p.npy", "--neighbors", "20"]
    done = subprocess.run(
        [sys.executable, "-c", PRESS, *arguments], capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert snapshot() == before


@pytest.mark.parametrize("moment", ["os.fsync", "os.replace", "batchplan.data.load.check_shapes"])
def test_control_c_at_any_moment(moment, npy, run, snapshot, monkeypatch):
    def press(*_arguments):
        raise KeyboardInterrupt

    before = snapshot()
    monkeypatch.setattr(moment, press)
    result = run("random", *npy, "-b", 8, "-o", "p.npy")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "interrupted\n"
    assert snapshot() == before
