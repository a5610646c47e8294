"""Peak memory of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROWS, DIM, NEIGHBORS = 50_000, 384, 512


def measure(data: Path) -> dict[str, object]:
    """Peak memory of `batchplan gcbs`, N = 50,000, d = 384, 512 a row."""
    with tempfile.TemporaryDirectory() as folder:
        summary = plan_random_rows(Path(folder), ROWS, DIM, NEIGHBORS)
    edges = ROWS * NEIGHBORS
    inputs = 2 * ROWS * DIM * 4
    peak = summary["peak_memory_bytes"]
    return {
        "peak memory, GB": peak / 1e9,
        "inputs + 1 GB + 24 bytes an edge, GB (goal)": (inputs + 1e9 + 24 * edges) / 1e9,
        "bytes an edge beyond inputs and 1 GB (goal 24)": (peak - inputs - 1e9) / edges,
    }


def plan_random_rows(folder: Path, rows: int, dim: int, neighbors: int, *options: str) -> dict:
    """Run ``batchplan gcbs`` over normal random rows; its JSON summary."""
    generator = np.random.Generator(np.random.Philox(0))
    for name in ("x", "y"):
        out = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, dim))
        for start in range(0, rows, 50_000):
            block = out[start : start + 50_000]
            block[:] = generator.standard_normal(block.shape, np.float32)
        out.flush()
        del out
    command = [sys.executable, "-m", "batchplan", "gcbs", folder / "x.npy", "--pair"]
    command += [
        folder / "y.npy",
        "--neighbors",
        str(neighbors),
        "-o",
        folder / "plan.npy",
        "--json",
    ]
    run = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)
