"""Partition and refine: quality against the others, groups, and a million rows."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import batchplan
from batchplan.data import load_labels
from tests.benchmarks.quality import load
from tests.observing import Observer

HARDEST: dict[str, Any] = {"guard": False, "mega_batches": 1}
SETTINGS = [(64, 0.05), (256, 0.05), (64, 0.02), (64, 0.1)]
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "partition --no-guard --mega-batches 1": ("partition", HARDEST),
    "the same with --refine 0 (parts of exact sizes)": ("partition", {**HARDEST, "refine": 0}),
    "partition --no-guard": ("partition", {"guard": False}),
    "gcbs": ("gcbs", {"guard": False}),
    "gcbs --refine 4": ("gcbs", {"guard": False, "refine": 4}),
    "random --refine 8": ("random", {"refine": 8}),
    "bcs": ("bcs", {}),
    "scb": ("scb", {}),
    "cluster": ("cluster", {}),
    "knn": ("knn", {}),
}
_AFTER_GRAPH = ("partition", "refine", "repair")


def timed(
    embeddings: batchplan.Embeddings, planner: str, **options: Any
) -> tuple[batchplan.Plan, float, float]:
    """A plan, the seconds it took, and those after the graph was built."""
    stages = Observer()
    began = time.perf_counter()
    plan = batchplan.plan(embeddings, planner=planner, observer=stages, **options)
    took = time.perf_counter() - began
    return plan, took, sum(stages.seconds.get(one, 0.0) for one in _AFTER_GRAPH)


def measure(data: Path) -> dict[str, object]:
    """Gap reduction of partition and of the others at four settings."""
    embeddings = load(data)
    few = batchplan.Embeddings.from_arrays(
        *(side.rows(0, 512) for side in (embeddings.x, embeddings.y))
    )
    for planner, options in PLANS.values():
        batchplan.plan(few, planner=planner, **options)  # compiles
    found: dict[str, object] = {}
    for size, tau in SETTINGS:
        for name, (planner, options) in PLANS.items():
            given = dict(options)
            if planner in ("partition", "bcs", "scb") or "refine" in given:
                given["temperature"] = tau
            plan, took, after = timed(embeddings, planner, batch_size=size, **given)
            one = batchplan.evaluate(plan, embeddings, temperature=tau, random_trials=5)
            text = f"gap reduction {one.gap_reduction:.4f}, oracle share {one.oracle_share:.4f}"
            text += f", {took:.2f} s"
            if planner == "partition":
                text += f", {after:.2f} s after the graph"
            found[f"B {size}, tau {tau}: {name}"] = text
            print(f"  B {size}, tau {tau}: {name:<54} {text}", flush=True)
    return {}


def measure_groups(data: Path) -> dict[str, object]:
    """What it costs that rows of one group never share a batch."""
    embeddings = load(data)
    table = data / "rows.parquet"
    table = table if table.exists() else data / "pairs.parquet"
    free = batchplan.plan(embeddings, planner="partition", **HARDEST)
    apart = batchplan.plan(
        embeddings, planner="partition", **HARDEST, group_column="group", label_table=str(table)
    )
    codes = load_labels("group", embeddings, table)
    one, other = (batchplan.evaluate(plan, embeddings, groups=codes) for plan in (free, apart))
    shares = [found.guard.by["group"] / found.guard.pairs for found in (one, other) if found.guard]
    return {
        "gap reduction without groups": one.gap_reduction,
        "gap reduction with groups": other.gap_reduction,
        "cost (at most 0.01)": one.gap_reduction - other.gap_reduction,
        "pairs of one group in a batch, of all, without": shares[0],
        "pairs of one group in a batch, of all, with": shares[1],
    }


def measure_million(data: Path) -> dict[str, object]:
    """Partition and refinement of up to 10^6 rows, d = 64, 16 neighbours given."""
    found: dict[str, object] = {}
    taken = []
    for rows in (62_500, 250_000, 1_000_000):
        command = [sys.executable, "-m", "tests.benchmarks.partition_rows", str(rows)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        parts = dict(part.split("=") for part in run.stdout.split())
        found[f"{rows:,} rows"] = ", ".join(f"{name} {value}" for name, value in parts.items())
        taken.append((rows, float(parts["partition_s"]) + float(parts["refine_s"])))
    (few, short), (many, long) = taken[0], taken[-1]
    found["growth: seconds ~ N ^"] = np.log(long / short) / np.log(many / few)
    return found
