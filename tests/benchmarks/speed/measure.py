"""Steps of planning against the matrix product alone and against the version before.

Both versions run in children that are asked for one step in turn, so that a slow minute slows both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from batchplan.graph.screen import screening_dtype
from tests.benchmarks.products import products, seconds
from tests.benchmarks.speed.data import real_like

ROOT = Path(__file__).parents[3]
BEFORE = "6589c346bc16ae2228c0085d41db6d566d32afd2"  # the commit that the goals were set against
ROWS, LARGE, HUGE = 25_000, 50_000, 100_000  # the version before would take long for the last
ROUNDS = 3
_FAST = screening_dtype(torch.device("cpu"))


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        name: what is timed.
        step: of `steps.Steps`.
        stages: whose seconds are added up; none for the whole step.
        products: at most how many times the time of the matrix product, None for no such goal.
        slow: the same on processors that multiply bfloat16 no faster than float32.
        times: at least how many times faster than the version before, None for no such goal.
        rows: of the data.
    """

    name: str
    step: str
    stages: tuple[str, ...] = ()
    products: float | None = None
    slow: float | None = None
    times: float | None = None
    rows: int = ROWS


TABLE = [
    Row("graph of gcbs, q = 0.999", "graph_of_quantile", products=1 / 0.6),
    Row("graph of gcbs, 512 a row", "graph_of_512", products=1 / 0.6, rows=LARGE),
    Row("16 neighbours both ways", "neighbors", products=4.5, slow=1.5),
    Row("16 neighbours both ways", "neighbors", products=2.5, rows=HUGE),
    Row("the same with a guard", "guarded_neighbors", products=4.5),
    Row("partition, one mega-batch, guard", "partition", products=25),
    Row("of which 4 passes of swaps", "partition", ("refine",), times=3),
    Row("the same without a guard", "partition_without_guard", ("refine",), times=3),
    Row("evaluate", "evaluate", times=3),
]


def measure(data: Path) -> dict[str, object]:
    """Each step in products X Y^T, and against the version before; medians of 3 in turn."""
    figures: dict[str, object] = {}
    for rows in (ROWS, LARGE, HUGE):
        table = [row for row in TABLE if row.rows == rows]
        figures |= measure_steps(data, rows, table)
    return {"screening type": str(_FAST)} | figures | _start_up()


def measure_steps(data: Path, rows: int, table: list[Row]) -> dict[str, str]:
    """The lines of a table, on so many real-like pairs."""
    figures: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        x, y = real_like(data, rows)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        now = stack.enter_context(_version(ROOT, folder))
        before = None
        if rows < HUGE and (tree := stack.enter_context(_tree_before())) is not None:
            before = stack.enter_context(_version(tree, folder))
        sides = [torch.from_numpy(side).to(_FAST) for side in (x, y)]
        for step in dict.fromkeys(row.step for row in table):
            rounds = []
            for _ in range(ROUNDS):
                product = seconds(lambda: products(*sides))
                rounds.append((product, now(step), before(step) if before else None))
            for row in table:
                if row.step == step:
                    figures[f"{row.name}, {rows:,} rows"] = _line(row, rounds)
    return figures


def _line(row: Row, rounds: list[tuple[float, dict[str, float], dict[str, float] | None]]) -> str:
    def spent(stages: dict[str, float]) -> float:
        return sum(stages.get(name, 0.0) for name in row.stages or ("total",))

    took = [spent(now) for _, now, _ in rounds]
    text = f"{statistics.median(took):.2f} s"
    share = statistics.median(t / product for t, (product, _, _) in zip(took, rounds, strict=True))
    text += f", {share:.1f} products"
    goal = row.products if _FAST is torch.bfloat16 else row.slow
    if goal is not None:
        text += f" (goal {goal:.3g})"
    ratios = [spent(old) / t for t, (_, _, old) in zip(took, rounds, strict=True) if old]
    if ratios:
        text += f", {statistics.median(ratios):.2f} times faster than before"
        text += f" (goal {row.times:g})" if row.times is not None else ""
    return text


@contextmanager
def _tree_before() -> Iterator[Path | None]:
    """The version before as a worktree; None where git does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        added = subprocess.run([*git, "add", "--detach", tree, BEFORE], capture_output=True)
        try:
            yield tree if added.returncode == 0 else None
        finally:
            if added.returncode == 0:
                subprocess.run([*git, "remove", "--force", tree], check=True)


@contextmanager
def _version(tree: Path, folder: Path) -> Iterator[Callable[[str], dict[str, float]]]:
    """A version in a child; the function asks it for the seconds of a step."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("steps.py")), str(folder)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(step: str) -> dict[str, float]:
        print(step, file=child.stdin, flush=True)
        return json.loads(child.stdout.readline())

    try:
        yield ask
    finally:
        child.communicate()


def _start_up() -> dict[str, object]:
    """A whole command less its stages: imports, loading of kernels, the end of the process."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "batchplan", "partition", "sample_data/pairs.parquet"]
        line += ["--output", f"{folder}/plan.npy", "--force", "--json"]
        left = []
        for _ in range(ROUNDS + 1):  # the first may compile
            began = time.perf_counter()
            told = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True)
            took = time.perf_counter() - began
            stages: dict[str, Any] = json.loads(told.stdout)["seconds"]
            left.append(took - sum(stages.values()) + stages.get("start-up", 0.0))
    median = statistics.median(left[1:])
    return {"whole command less its stages": f"{median:.2f} s (goal 1.2)"}
