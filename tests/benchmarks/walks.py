"""Walks over a proximity graph against plain Python ones, and a partition of a million rows."""

from __future__ import annotations

import random
import resource
import statistics
import time
from pathlib import Path

import numpy as np

import batchplan
from batchplan.planners.papers.rwr.proximity import proximity_graph
from batchplan.planners.papers.rwr.walks import Walker, disjoint, independent
from batchplan.runtime import Runtime
from tests.benchmarks.quality import load

ROWS, NEIGHBORS, BATCH = 1_000_000, 16, 64
GRAPH_ROWS, DIM, CANDIDATES = 100_000, 128, 1000  # a tenth of the rows: the graph is linear in N


def measure(data: Path) -> dict[str, object]:
    """Batches of 64 a second by walks; a million rows partitioned; seconds to build the graph."""
    runtime = Runtime(device="cpu")
    found = proximity_graph(load(data), 1000, 100, runtime)
    lists = found.indices.tolist()
    turns = [(*_compiled(found.indices), _plain(lists)) for _ in range(5)]
    compiled, one_core, plain = (statistics.median(one) for one in zip(*turns, strict=True))
    graph = _random_graph()
    walker = _walker(graph)
    began = time.perf_counter()
    walked = disjoint(walker, BATCH, lambda _: None)
    partitioned = time.perf_counter() - began
    assert np.array_equal(np.sort(walked), np.arange(ROWS))
    rows = np.random.default_rng(0).standard_normal((GRAPH_ROWS, DIM), dtype=np.float32)
    embeddings = batchplan.load_embeddings(rows)
    began = time.perf_counter()
    proximity_graph(embeddings, CANDIDATES, 100, runtime)
    built = time.perf_counter() - began
    return {
        "walks a second, all cores": compiled,
        "walks a second of one core (processor time)": one_core,
        "walks a second, plain Python": plain,
        "times faster than plain Python (goal 20)": compiled / plain,
        "times faster, one core against one": one_core / plain,
        f"seconds to partition {ROWS:,} rows, K = {NEIGHBORS}": partitioned,
        f"seconds to build {GRAPH_ROWS:,} x {DIM}, M = {CANDIDATES}": built,
        "peak memory of all this, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def _walker(graph: np.ndarray) -> Walker:
    rng = np.random.default_rng(0)
    key = rng.integers(2**64, dtype=np.uint64)
    order = rng.permutation(len(graph))
    return Walker(graph, order, key, breadth=False, restart=0.2)


def _random_graph() -> np.ndarray:
    """Neighbours near each row, as similar rows have, and a few far ones."""
    rng = np.random.default_rng(0)
    spread = rng.integers(1, 200, (ROWS, NEIGHBORS), dtype=np.int32)
    spread[:, -2:] = rng.integers(1, ROWS, (ROWS, 2), dtype=np.int32)
    spread += np.arange(ROWS, dtype=np.int32)[:, None]
    return spread % ROWS


def _compiled(graph: np.ndarray) -> tuple[float, float]:
    """Walks a second of wall time with all cores, and of processor time."""
    walker = _walker(graph)
    independent(walker, BATCH, 10, lambda _: None)  # compiles
    began, used = time.perf_counter(), time.process_time()
    independent(walker, BATCH, 40_000, lambda _: None)
    return 40_000 / (time.perf_counter() - began), 40_000 / (time.process_time() - used)


def _plain(graph: list[list[int]]) -> float:
    """Algorithm 3 as one would write it."""
    rng = random.Random(0)
    began = time.process_time()
    for _ in range(300):
        start = row = rng.randrange(len(graph))
        batch = {start}
        while len(batch) < BATCH:
            row = start if rng.random() < 0.2 else rng.choice(graph[row])
            batch.add(row)
    return 300 / (time.process_time() - began)
