"""Compiles all kernels before they are needed, and keeps them in the cache.

What numba compiles depends on the types of arrays, not on their values. So every planner, `refine`
and `evaluate` run once on a few rows, and again with options for which they use other kernels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.data import Candidates, Data, Embeddings
from batchplan.guard.describe import describe
from batchplan.planners import PLANNERS, run_planner
from batchplan.plans.plan import Plan
from batchplan.quality.facts import RowFacts
from batchplan.quality.measure import evaluate_plans
from batchplan.quality.options import EvaluationOptions
from batchplan.refinement.options import RefineOptions
from batchplan.refinement.plan import refine_plan
from batchplan.runtime import Runtime

_ROWS, _DIM, _BATCH, _LARGE = 520, 16, 8, 260  # large batches look up which rows meet

_ALIKE: dict[str, Any] = {"group_column": "code"}
_PASS: dict[str, Any] = {"refine": 1}
_NEAR: dict[str, Any] = {"relative_margin": 0.1}
_COLD: dict[str, Any] = {"temperature": 1e-4}  # its exponentials are out of the range of float32

# Options with which planners use other kernels than by default.
_WAYS: dict[str, list[dict[str, Any]]] = {
    "partition": [
        {"guard": False},
        _ALIKE,
        {"source_column": "code", "batch_order": "planned"},
        {"source_column": "code", "source_mix": "proportional"},
    ],
    "gcbs": [{**_NEAR, **_PASS}, {"neighbors": 4, **_ALIKE}],
    "bcs": [_PASS],
    "random": [_NEAR, _ALIKE, {"anchor_id": "code"}, {"anchor_id": "code", "batch_size": _LARGE}],
    "chain": [_NEAR, _ALIKE],
    "knn": [{"neighbors": 16}],
    "hardneg": [{"as_batches": True}, {"as_batches": True, **_ALIKE}],
    "scns": [
        {"as_batches": True, "per_row": 2},
        {"label_column": "code", "level": "class", "top_k": 2, "per_row": 2},
    ],
    "rwr": [
        {"candidate_rows": 32, "neighbors": 8},
        {"candidate_rows": 32, "neighbors": 8, **_NEAR},
        {"coverage": "independent"},
    ],
}


Run = Callable[[], object]


def runs(folder: Path, runtime: Runtime) -> list[Run]:
    """Return all commands to run: on pairs of rows, on one matrix, and on mined negatives.

    Args:
        folder: an empty folder, for a file of random columns.
        runtime: device and memory budget; its observer sees every stage.
    """
    table = folder / "codes.parquet"
    rows = np.arange(_ROWS)
    pq.write_table(pa.table({"code": rows % 4, "document": rows % 5}), table)
    noise = np.random.default_rng(0).standard_normal((2, _ROWS, _DIM), np.float32)
    noise[:, 1] = noise[:, 0]  # equal rows, which guards separate by swaps
    y = noise[0] + noise[1] / 2
    both = Embeddings.from_arrays(noise[0], y), Embeddings.from_arrays(noise[0])
    runs_of_pairs = [run for data in both for run in _runs(data, table, runtime)]
    tuples = Embeddings.from_arrays(noise[0], y, negatives=noise[1])
    return [*runs_of_pairs, *_runs_of_mined(tuples, table, runtime)]


def _planned(planner: str, data: Data, way: dict[str, Any], table: Path, runtime: Runtime) -> Any:
    """Plan with some options. Columns that they name are in a table."""
    if any(name.endswith(("_column", "_id")) for name in way):
        way = {**way, "label_table": str(table)}
    kind: Any = PLANNERS[planner].options
    return run_planner(planner, data, kind(**{"batch_size": _BATCH, **way}), runtime)


def _runs(data: Embeddings, table: Path, runtime: Runtime) -> Iterator[Run]:
    """Yield the runs on pairs or on one matrix."""

    def refined(way: dict[str, Any]) -> Plan:
        return refine_plan(plan, data, RefineOptions(passes=1, **way), runtime)

    def measured(way: dict[str, Any], codes: Any) -> object:
        options = EvaluationOptions(random_trials=2, **way)
        facts = RowFacts.read(data, options, runtime, codes)
        return evaluate_plans([plan], data, facts, options, runtime)

    plan: Plan = _planned("random", data, {}, table, runtime)
    for planner in PLANNERS:
        for way in ({}, *_WAYS.get(planner, [])):
            yield partial(_planned, planner, data, way, table, runtime)
    for way in ({}, _NEAR, _COLD, {"source_column": "code", "label_table": str(table)}):
        yield partial(refined, way)
    for way in ({}, _COLD):
        yield partial(measured, way, None)
    ids = {"anchor_id": "code", "positive_id": "document", "label_table": str(table)}
    yield partial(measured, {**_NEAR, **ids}, np.arange(_ROWS) % 4)
    yield partial(describe, data, runtime, similarity="cosine")


def _runs_of_mined(tuples: Embeddings, table: Path, runtime: Runtime) -> Iterator[Run]:
    """Yield the runs that need mined negatives or lists of candidates."""
    yield partial(_planned, "partition", tuples, _NEAR, table, runtime)
    ids = (np.arange(_ROWS)[:, None] + 1 + np.arange(_BATCH)) % _ROWS
    scores = np.tile(np.linspace(0.9, 0.1, _BATCH), (_ROWS, 1))
    lists = Candidates.from_lists(ids, scores, np.ones(_ROWS))
    yield partial(_planned, "partition", lists, {}, table, runtime)
