"""Graphs and neighbours of millions of rows on CUDA devices.

One command on a machine with a card prints all of it, with the card's name:

    PYTHONPATH=. python -m tests.benchmarks million
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_rows
from batchplan.graph.csr import union_with_transpose
from batchplan.graph.neighbors import neighbors_both_ways
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.gcbs.similarity_graph import SimilarityGraph
from batchplan.runtime import Runtime, available_memory
from tests.benchmarks.memory import plan_random_rows

ROWS, DIM, NEIGHBORS = 1_000_000, 768, 512
MORE_ROWS = 5_000_000
NEAREST = 16  # of `partition`
CHECKED = 64  # rows compared with brute force


class Stages:
    """Seconds of each stage, and notes such as a retried pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.notes: list[str] = []

    def start(self, stage: str, total: int | None) -> None:
        pass

    def advance(self, stage: str, steps: int) -> None:
        pass

    def finish(self, stage: str, seconds: float) -> None:
        torch.cuda.synchronize()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def note(self, name: str, value: object) -> None:
        self.notes.append(f"{name}: {value}")


def measure(data: Path) -> dict[str, object]:
    """Graphs of 10^6 and 5 x 10^6 pairs, d = 768, 512 a row (GCBS table 11: 1,013 s on an A40)."""
    if not torch.cuda.is_available():
        return {"device": "no CUDA device here: not measured"}
    figures: dict[str, object] = {
        "device": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}",
        "host": f"{torch.get_num_threads()} threads",
    }
    stages = Stages()
    runtime = Runtime(device="cuda", observer=stages)
    figures["seconds, first graph of 20,000 (compiles)"] = _timed(
        lambda: build_graph(random_pairs(20_000), 64 * 20_000, runtime)
    )[0]
    figures |= _graph(ROWS, 10)
    if available_memory() > 5 * MORE_ROWS * DIM:
        figures |= _graph(MORE_ROWS, 120)
    else:
        figures["5,000,000 rows"] = "not measured: too little host memory"
    with tempfile.TemporaryDirectory() as folder:
        summary = plan_random_rows(Path(folder), ROWS, DIM, NEIGHBORS, "--device", "cuda")
    return figures | {
        "seconds, command gcbs (at most 60)": summary["seconds_total"],
        **{f"  seconds, {stage}": taken for stage, taken in summary["seconds"].items()},
        "peak device memory, GB": summary["peak_device_memory_bytes"] / 1e9,
        "peak host memory, GB": summary["peak_memory_bytes"] / 1e9,
    }


def random_pairs(rows: int) -> Embeddings:
    """float16 pairs with a common direction and related sides, made on the device."""
    generator = torch.Generator("cuda").manual_seed(0)
    x, y = (np.empty((rows, DIM), np.float16) for _ in range(2))
    for start in range(0, rows, 1 << 17):
        part = slice(start, min(start + (1 << 17), rows))
        size = part.stop - part.start, DIM
        common, *own = (torch.randn(size, generator=generator, device="cuda") for _ in range(3))
        for side, noise in zip((x, y), own, strict=True):
            side[part] = (0.2 + common + noise).half().cpu().numpy()
    return Embeddings.from_arrays(x, y)


def _graph(rows: int, goal: float) -> dict[str, object]:
    embeddings = random_pairs(rows)
    name = f"{rows:,} rows"
    figures: dict[str, object] = {}
    product = _products(rows)
    figures[f"{name}: seconds, bf16 products alone"] = product
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    stages = Stages()
    runtime = Runtime(device="cuda", observer=stages)
    try:
        taken, graph = _timed(
            lambda: build_graph(embeddings, NEIGHBORS * rows, runtime, weights=False)
        )
    except Exception as error:  # a card may be too small; the other figures still count
        return figures | {f"{name}: graph": f"{type(error).__name__}: {error}"}
    figures[f"{name}: seconds, graph (goal {goal:g})"] = taken
    figures[f"{name}: share of the products' speed"] = product / taken
    for stage, seconds in stages.seconds.items():
        figures[f"{name}:   seconds, {stage}"] = seconds
    figures[f"{name}: notes"] = stages.notes or "none"
    figures[f"{name}: peak device memory, GB"] = torch.cuda.max_memory_allocated() / 1e9
    figures[f"{name}: rows of {CHECKED} unlike brute force"] = _unlike(graph, embeddings)
    try:
        union = _timed(partial(union_with_transpose, graph.indptr, graph.indices))[0]
        figures[f"{name}: seconds, union with the transpose"] = union
    except Exception as error:
        figures[f"{name}: union"] = f"{type(error).__name__}: {error}"
    del graph
    if rows == ROWS:
        stages = Stages()
        runtime = Runtime(device="cuda", observer=stages)
        figures[f"{name}: seconds, {NEAREST} neighbours both ways (goal {goal:g})"] = _timed(
            lambda: neighbors_both_ways(embeddings, NEAREST, runtime)
        )[0]
        for stage, seconds in stages.seconds.items():
            figures[f"{name}:   seconds, {stage} of neighbours"] = seconds
    return figures


def _products(rows: int) -> float:
    """Seconds of X Y^T in tiles, from some of them."""
    x = torch.randn(8192, DIM, device="cuda", dtype=torch.bfloat16)
    y = torch.randn(65536, DIM, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(len(x), len(y), device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        torch.mm(x, y.T, out=out)
    times = 20
    taken, _ = _timed(lambda: [torch.mm(x, y.T, out=out) for _ in range(times)])
    return taken / times * rows * rows / (len(x) * len(y))


def _unlike(graph: SimilarityGraph, embeddings: Embeddings) -> int:
    """How many of some rows lack an edge above the threshold, or have another below it."""
    rows = np.linspace(0, graph.num_rows - 1, CHECKED).astype(np.int64)
    device = graph.device
    x = torch.cat([load_rows(embeddings.x, i, i + 1, device, True) for i in rows])
    wrong = torch.zeros(CHECKED, dtype=torch.bool, device=device)
    starts, ends = (graph.indptr[torch.from_numpy(rows + k).to(device)] for k in (0, 1))
    for first in range(0, graph.num_rows, 1 << 16):
        stop = min(first + (1 << 16), graph.num_rows)
        y = load_rows(embeddings.y, first, stop, device, True)
        exact = (x.double() @ y.double().T).float()
        edges = torch.zeros(exact.shape, dtype=torch.bool, device=device)
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            near = graph.indices[start:end].long() - first
            edges[row, near[(near >= 0) & (near < stop - first)]] = True
            if first <= rows[row] < stop:
                exact[row, rows[row] - first] = -torch.inf
        wrong |= ((exact > graph.threshold) & ~edges).any(1)
        wrong |= ((exact < graph.threshold) & edges).any(1)
    return int(wrong.sum())


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    out = work()
    torch.cuda.synchronize()
    return time.perf_counter() - began, out
