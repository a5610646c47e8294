"""The greedy planners of the mini-batch paper, at their full size."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DIM = 384


def measure(data: Path) -> dict[str, object]:
    """`batchplan scb` of 25,000 rows and `bcs` of 4,096, d = 384, batch 64."""
    found: dict[str, object] = {}
    for planner, rows, goal in (("scb", 25_000, " (goal 60)"), ("bcs", 4_096, "")):
        with tempfile.TemporaryDirectory() as folder:
            summary = plan_random_rows(Path(folder), planner, rows)
        found[f"{planner}, {rows} rows, seconds{goal}"] = summary["seconds_total"]
        found[f"{planner}, {rows} rows, peak memory, GB"] = summary["peak_memory_bytes"] / 1e9
    return found


def plan_random_rows(folder: Path, planner: str, rows: int) -> dict:
    """Run a planner over pairs of normal random rows; its JSON summary."""
    generator = np.random.Generator(np.random.Philox(0))
    x = generator.standard_normal((rows, DIM), np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x + generator.standard_normal((rows, DIM), np.float32))
    command = [sys.executable, "-m", "batchplan", planner, folder / "x.npy", "--pair"]
    command += [folder / "y.npy", "-o", folder / "plan.npy", "--json"]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)
