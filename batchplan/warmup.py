"""All kernels compiled and kept, before any data need them.

What numba compiles depends on the types of arrays, not on what they hold. So every planner,
`refine` and `evaluate` run once on a few rows, in each way in which they take other paths. Numba
compiles one kernel at a time, so a second process helps, and each loads what the other has kept.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.data import Data, Embeddings
from batchplan.files.signals import ended_with
from batchplan.guard.describe import describe
from batchplan.planners import PLANNERS, run_planner
from batchplan.plans.plan import Plan
from batchplan.quality.listed import evaluate_lists
from batchplan.quality.measure import evaluate_plans
from batchplan.quality.options import EvaluationOptions
from batchplan.refinement.options import RefineOptions
from batchplan.refinement.plan import refine_plan
from batchplan.runtime import Runtime

_ROWS, _DIM, _BATCH = 256, 16, 8

_ALIKE: dict[str, Any] = {"group_column": "code"}
_PASS: dict[str, Any] = {"refine": 1}
_NEAR: dict[str, Any] = {"relative_margin": 0.1}
_COLD: dict[str, Any] = {"temperature": 1e-4}  # exponentials that float32 does not hold
_SWAPPING = {*_ALIKE, *_PASS, *_NEAR}  # options for which rows are swapped

# The ways in which planners take other paths than by default.
_WAYS: dict[str, list[dict[str, Any]]] = {
    "partition": [
        {"guard": False},
        _ALIKE,
        {"source_column": "code", "batch_order": "planned"},
        {"source_column": "code", "source_mix": "proportional"},
        {"source_column": "code", "source_mix": "blocks", "source_block_rows": 4},
    ],
    "gcbs": [{**_NEAR, **_PASS}, {"neighbors": 4, **_ALIKE}],
    "bcs": [_PASS],
    "random": [_NEAR, _ALIKE],
    "chain": [_NEAR, _ALIKE],
    "knn": [{"neighbors": 16}],
    "hardneg": [{"as_batches": True}, {"as_batches": True, **_ALIKE}],
    "scns": [
        {"as_batches": True, "per_row": 2},
        {"label_column": "code", "level": "class", "top_k": 2, "per_row": 2},
        {"label_column": "code", "mixup_beta": 1.0},
    ],
    "rwr": [
        {"candidate_rows": 32, "neighbors": 8},
        {"candidate_rows": 32, "neighbors": 8, **_NEAR},
        {"coverage": "independent"},
    ],
}


class Run(NamedTuple):
    """A command on a few rows, and whether it swaps some even where all rows differ."""

    swaps: bool
    work: Callable[[], object]


def runs(folder: Path, runtime: Runtime, *, equal_rows: bool = True) -> list[Run]:
    """Every command, first on pairs of rows, then on one matrix.

    Args:
        folder: an empty one, for a file of made-up columns and plans.
        runtime: device and memory budget; its observer hears of every stage.
        equal_rows: whether two rows are equal, which guards keep apart.
    """
    table = folder / "codes.parquet"
    pq.write_table(pa.table({"code": np.arange(_ROWS) % 4}), table)
    noise = np.random.default_rng(0).standard_normal((2, _ROWS, _DIM), np.float32)
    if equal_rows:
        noise[:, 1] = noise[:, 0]
    y = noise[0] + noise[1] / 2
    both = Embeddings.from_arrays(noise[0], y), Embeddings.from_arrays(noise[0])
    runs_of_pairs = [run for data in both for run in _runs(data, table, runtime)]
    tuples = Embeddings.from_arrays(noise[0], y, negatives=noise[1])
    return [*runs_of_pairs, *_runs_of_mined(tuples, runtime)]


@contextmanager
def helper() -> Iterator[Callable[[], list[str]]]:
    """Another process that does what swaps no rows, until the body is done or this one ends.

    It leaves the swaps alone, whose kernel takes longest: both would compile it at the same time.

    Yields:
        A function that tells what that process has begun to compile since it was last asked.
    """
    with (
        TemporaryDirectory() as folder,
        Path(folder, "told").open("wb") as stream,
        Path(folder, "told").open(encoding="utf-8") as lines,
    ):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, folder],
            stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with process:
            try:
                yield lambda: lines.read().splitlines()
            finally:
                process.kill()


def _runs(data: Embeddings, table: Path, runtime: Runtime) -> Iterator[Run]:
    def planned(planner: str, way: dict[str, Any]) -> Any:
        kind: Any = PLANNERS[planner].options
        named = {"label_table": str(table)} if any(name.endswith("_column") for name in way) else {}
        return run_planner(planner, data, kind(batch_size=_BATCH, **way, **named), runtime)

    def refined(way: dict[str, Any]) -> Plan:
        return refine_plan(plan, data, RefineOptions(passes=1, **way), runtime)

    def measured(way: dict[str, Any], codes: Any) -> object:
        options = EvaluationOptions(random_trials=2, **way)
        return evaluate_plans([plan], data, options, runtime, labels=codes, groups=codes)

    plan: Plan = planned("random", {})
    plan.save(start := table.parent / f"{'pairs' if data.paired else 'rows'}.npz")
    for planner in PLANNERS:
        for way in ({}, *_WAYS.get(planner, [])):
            swaps = planner == "partition" or not _SWAPPING.isdisjoint(way)
            yield Run(swaps, partial(planned, planner, way))
    yield Run(True, partial(planned, "partition", {"from_plan": str(start)}))
    for way in ({}, _NEAR, _COLD, {"source_column": "code", "label_table": str(table)}):
        yield Run(True, partial(refined, way))
    for way in ({}, _COLD):
        yield Run(False, partial(measured, way, None))
    way = {"neighbors": 4, **_NEAR}
    yield Run(False, partial(measured, way, np.arange(_ROWS) % 4))
    yield Run(False, partial(describe, data, runtime, similarity="cosine"))


def _runs_of_mined(tuples: Embeddings, runtime: Runtime) -> Iterator[Run]:
    """What only mined negatives and lists of candidates need."""

    def planned(planner: str, data: Data, **way: Any) -> Any:
        kind: Any = PLANNERS[planner].options
        return run_planner(planner, data, kind(batch_size=_BATCH, **way), runtime)

    for planner in ("partition", "gcbs"):
        yield Run(True, partial(planned, planner, tuples, **_NEAR))
    pairs = tuples.by_document()[0]
    lists = planned("hardneg", pairs, per_row=_BATCH, as_candidates=True)
    yield Run(True, partial(planned, "partition", lists))
    plan = planned("random", lists)
    yield Run(False, partial(evaluate_lists, plan, lists, EvaluationOptions(), runtime))


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logging.getLogger("batchplan.kernels").setLevel(logging.INFO)
    with ended_with(0):
        for run in reversed(runs(Path(sys.argv[1]), Runtime("cpu"), equal_rows=False)):
            if not run.swaps:
                run.work()
