"""`warmup` compiles all that later commands need, and commands say when they compile."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchplan
from batchplan.planners import PLANNERS
from tests.cli.test_terminal import BAR, on_terminal

ROWS, DIM = 150, 12
RUN = """
import json, sys
from batchplan.cli.app import app
from numba.core.dispatcher import Dispatcher
from typer.main import get_command

def compiled():
    kernels = {
        kernel
        for name, module in list(sys.modules.items()) if name.startswith("batchplan")
        for kernel in vars(module).values() if isinstance(kernel, Dispatcher)
    }
    called = {name for kernel in kernels for name in kernel.py_func.__code__.co_names}
    return sorted(
        f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__} {signature}"
        for kernel in kernels
        for signature in kernel.signatures or ["none"]
        if kernel.signatures or kernel.py_func.__name__ not in called  # they come with callers
    )

def run(arguments):
    status = command(arguments, standalone_mode=False)
    assert not status, arguments

command = get_command(app)
run(["warmup"])
warm = compiled()
for arguments in json.load(sys.stdin):
    run(arguments)
json.dump([warm, compiled()], open("kernels.json", "w"))
"""
GUARD = ["--relative-margin", "0.2"]
GROUPS = ["--group-column", "group"]
TUNED = {
    "partition": [["--no-guard"], ["--source-column", "group"], ["--mega-batches", "1", *GROUPS]],
    "gcbs": [GUARD, ["--refine", "2"], ["--neighbors", "3", *GROUPS]],
    "bcs": [["--refine", "1"]],
    "scb": [["--refine", "1"]],
    "chain": [["--hardness", "0.9", *GUARD], ["--space-rows", "50", *GROUPS]],
    "knn": [["--neighbors", "20"]],
    "hardneg": [["--as-batches"], GROUPS],
    "scns": [
        ["--as-batches", "--per-row", "3"],
    ],
    "random": [["--refine", "1"], GUARD, GROUPS],
    "rwr": [["--candidate-rows", "40", *GUARD], ["--coverage", "complete"]],
}
PAIRS, ALONE = ["pairs.parquet"], ["alone.npy"]


@pytest.fixture
def data(folder):
    """Float16 pairs with groups, and one float32 matrix; other rows than `warmup` makes up."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((ROWS, DIM))
    x[7] = x[3]
    sides = {"x": x, "y": x + rng.standard_normal((ROWS, DIM))}
    columns = {name: pa.array(list(side.astype(np.float16))) for name, side in sides.items()}
    pq.write_table(pa.table({**columns, "group": [f"g{i % 9}" for i in range(ROWS)]}), *PAIRS)
    np.save(*ALONE, x.astype(np.float32))
    ids = (np.arange(ROWS)[:, None] + 1 + np.arange(9)) % ROWS
    scores = np.tile(np.linspace(0.9, 0.1, 9), (ROWS, 1))
    lists = {"ids": list(ids), "scores": list(scores), "positive": np.ones(ROWS)}
    pq.write_table(pa.table(lists), "c.parquet")


def commands():
    for planner in PLANNERS:
        for way, source in (
            ([], PAIRS),
            ([], ALONE),
            *((way, PAIRS) for way in TUNED.get(planner, [])),
        ):
            table = planner in ("hardneg", "scns") and "--as-batches" not in way
            out = ["-o", "table.parquet" if table else "plan.npy", "-f", "-q"]
            yield [planner, *source, "-b", "10", *way, *out]
    yield ["random", *PAIRS, "-b", "10", "-o", "plan.npy", "-f", "-q"]
    for way in ([], GUARD, ["--source-column", "group"]):
        yield ["refine", "plan.npy", *PAIRS, *way, "-o", "refined.npy", "-f", "-q"]
    yield ["evaluate", "plan.npy", *PAIRS, "-q"]
    yield ["evaluate", "plan.npy", *PAIRS, *GUARD, *GROUPS, "-q"]
    yield ["report", "plan.npy", *PAIRS, "-q"]
    yield ["inspect", *PAIRS, "-q"]
    mined = [*PAIRS, "--negatives", "alone.npy", "-b", "10"]
    yield ["partition", *mined, "-o", "tuples.npy", "-q"]
    yield ["evaluate", "tuples.npy", *mined[:3], "-q"]
    lists = ["--candidates", "c.parquet"]
    yield ["partition", *lists, "-b", "10", "-o", "lists.npy", "-q"]
    yield ["evaluate", "lists.npy", *lists, "-q"]


@pytest.fixture
def forgets(folder):
    """A function after which a copy of the package in this folder lacks a kernel of knn."""
    shutil.copytree(Path(batchplan.__file__).parent, folder / "batchplan")

    def forgets():
        for path in folder.glob("batchplan/planners/papers/knn/__pycache__/planner.fill-*.nb?"):
            path.unlink()

    return forgets


def test_nothing_is_compiled_after_it(folder, data, forgets):
    """What commands load of the kept kernels, `warmup` had loaded or compiled, and said so."""
    forgets()
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(list(commands())),
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    warm, used = json.loads(Path("kernels.json").read_text())
    assert len(warm) > 30  # others are called by these alone
    assert not [kernel for kernel in warm if kernel.endswith(" none")]  # nor in rare cases
    assert used == warm
    assert "compiling kernels that no earlier command needed" in done.stderr
    assert re.search(r"[1-9][0-9]* compiled", done.stderr)


def test_a_command_tells_when_it_compiles(folder, data, forgets):
    """Once; on a terminal a bar counts the kernels."""

    def told(*more):
        forgets()
        drawn = on_terminal("knn", *PAIRS, "-b", "10", "-f", *more, PYTHONPATH=str(folder))
        return " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn).split())

    text = told()
    assert text.count("compiling kernels that no earlier command needed: up to 30 seconds") == 1
    assert re.search(rf"compile {BAR}+ [1-9]\d*/\?", text)
    assert not told("-q")


AS_USER = """
import logging, os, sys
from tests.loaded import forget
forget()
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
logging.basicConfig(format="%(message)s")
logging.getLogger("batchplan.kernels").setLevel(logging.INFO)
import batchplan
batchplan.plan(batchplan.load_embeddings("pairs.parquet"), planner="knn", batch_size=10)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_root_compiles_serves_users_without_a_home(data, programs):
    """In a process that has loaded the libraries, which others may not be able to read."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        shutil.copy(*PAIRS, name)
        shutil.copytree(Path(batchplan.__file__).parent, Path(name, "batchplan"))
        Path(name, "as_user.py").write_text(AS_USER)
        environment = {key: value for key, value in os.environ.items() if key != "HOME"}

        def told(user):
            command = [programs / "python", "as_user.py", str(user)]
            done = subprocess.run(
                command, cwd=name, env=environment, text=True, capture_output=True, check=True
            )
            return done.stderr

        told(0)
        assert list(Path(name).rglob("planner.fill-*.nbc"))
        assert told(65534) == ""
