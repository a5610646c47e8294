"""Steps of planning against the matrix product X Y^T alone, and what a command adds to them.

A product and a step take turns, so that a slow minute slows both.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import batchplan
from batchplan.data.answers import answers_of
from batchplan.graph.affinity import neighbor_lists
from batchplan.graph.screen import screening_dtype
from batchplan.guard.guard import make_guard
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.runtime import Runtime
from tests.benchmarks.products import products, seconds
from tests.benchmarks.speed.data import real_like
from tests.observing import Observer

ROOT = Path(__file__).parents[3]
ROWS, LARGE = 25_000, 50_000
ROUNDS = 3
BATCH, NEIGHBORS = 64, 16
_FAST = screening_dtype(torch.device("cpu"))
_AMX = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        name: what is timed.
        step: a key of `steps`.
        stages: whose seconds are added up; none for the whole step.
        unit: of the goals: ``products``, ``s`` of wall time, or ``processor s``.
        goals: at most, on processors with AMX, and on others.
        rows: of the data.
    """

    name: str
    step: str
    stages: tuple[str, ...] = ()
    unit: str = "products"
    goals: tuple[float, float] | None = None
    rows: int = ROWS


TABLE = [
    Row("graph of gcbs, 512 edges a row", "graph", goals=(1.67, 1.67), rows=LARGE),
    Row("16 neighbours both ways", "neighbors", goals=(4.5, 4.5)),
    Row("the same with a guard", "guarded neighbors", goals=(4.0, 4.0)),
    Row("partition, one mega-batch", "partition", goals=(15, 6)),
    Row("of which parts", "partition", ("partition",), "s", (0.6, 0.6)),
    Row("of which swaps", "partition", ("refine",), goals=(5, 1.5)),
    Row("evaluate with a guard", "evaluate", unit="processor s", goals=(4.8, 4.3)),
]


def measure(data: Path) -> dict[str, object]:
    """Each step, median of 3: seconds, and the goal in its unit."""
    figures: dict[str, object] = {"screening type": str(_FAST)}
    for rows in (ROWS, LARGE):
        figures |= measure_steps(data, rows, [row for row in TABLE if row.rows == rows])
    return figures | _commands()


def steps(embeddings: batchplan.Embeddings) -> dict[str, Callable[[Observer], Any]]:
    """What can be timed, on some pairs."""
    guard = make_guard(embeddings, Runtime(), answers=answers_of(embeddings), relative_margin=0.1)
    plan = batchplan.plan(embeddings, planner="random", batch_size=BATCH)

    def neighbors(watch: Observer, guard: Any = None) -> None:
        runtime = Runtime("cpu", observer=watch)
        neighbor_lists(embeddings, NEIGHBORS, runtime, similarity="cosine", guard=guard)

    return {
        "graph": lambda watch: build_graph(
            embeddings, 512 * embeddings.num_rows, Runtime("cpu", observer=watch), weights=False
        ),
        "neighbors": neighbors,
        "guarded neighbors": lambda watch: neighbors(watch, guard),
        "partition": lambda watch: batchplan.plan(
            embeddings,
            planner="partition",
            batch_size=BATCH,
            mega_batches=1,
            device="cpu",
            observer=watch,
        ),
        "evaluate": lambda watch: batchplan.evaluate(
            plan, embeddings, relative_margin=0.1, device="cpu", observer=watch
        ),
    }


def measure_steps(data: Path, rows: int, table: list[Row]) -> dict[str, str]:
    """The lines of a table, on ``rows`` real-like pairs."""
    x, y = real_like(data, rows)
    sides = [torch.from_numpy(side).to(_FAST) for side in (x, y)]
    work = steps(batchplan.Embeddings.from_arrays(x, y))
    few = steps(batchplan.Embeddings.from_arrays(x[:600], y[:600]))
    figures: dict[str, str] = {}
    for step in dict.fromkeys(row.step for row in table):
        if step != "graph":  # which needs more rows than edges a row, and little to compile
            few[step](Observer())  # compiles
        rounds = []
        for _ in range(ROUNDS):
            product = seconds(lambda: products(*sides))
            watch, began, used = Observer(), time.perf_counter(), _processor_seconds()
            work[step](watch)
            watch.seconds["total"] = time.perf_counter() - began
            rounds.append((product, watch.seconds, _processor_seconds() - used))
        for row in table:
            if row.step == step:
                figures[f"{row.name}, {rows:,} rows"] = _line(row, rounds)
    return figures


def _line(row: Row, rounds: list[tuple[float, dict[str, float], float]]) -> str:
    took = [
        sum(spent.get(name, 0.0) for name in row.stages or ("total",)) for _, spent, _ in rounds
    ]
    shares = [one / product for one, (product, _, _) in zip(took, rounds, strict=True)]
    measured = {"s": took, "products": shares, "processor s": [used for *_, used in rounds]}
    text = f"{statistics.median(took):.3g} s"
    if row.unit != "s":
        text += f", {statistics.median(measured[row.unit]):.1f} {row.unit}"
    return text if row.goals is None else f"{text} (goal {row.goals[0 if _AMX else 1]:.3g})"


def _processor_seconds() -> float:
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in own)


def _commands() -> dict[str, object]:
    """A whole command less its stages, and the processor time that `make run` takes longer where
    nothing is compiled yet."""
    pairs = str(ROOT / "sample_data/pairs.parquet")
    with tempfile.TemporaryDirectory() as folder:
        plan = f"{folder}/plan.npy"
        planning = ["plan", pairs, "--output", plan, "--force", "--json"]
        compiling = {"NUMBA_CACHE_DIR": f"{folder}/kernels"}

        def run(*command: str) -> str:
            line = [sys.executable, "-m", "batchplan", *command]
            done = subprocess.run(line, env=os.environ | compiling, check=True, capture_output=True)
            return done.stdout.decode()

        spent = []
        for _ in range(2):
            before = _processor_seconds()
            run(*planning)
            run("evaluate", plan, pairs)
            spent.append(_processor_seconds() - before)
        left = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            stages: dict[str, float] = json.loads(run(*planning))["seconds"]
            took = time.perf_counter() - began
            left.append(took - sum(stages.values()) + stages.get("start-up", 0.0))
    return {
        "whole command less its stages": f"{statistics.median(left):.2f} s (goal 1.0)",
        "compiling for make run": f"{spent[0] - spent[1]:.1f} processor s (goal 8)",
    }
