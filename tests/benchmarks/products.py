"""Graph building against its own matrix products, against faiss, and against N."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from batchplan.data import Embeddings
from batchplan.graph.screen import screening_dtype
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.runtime import Runtime

ROWS, DIM, NEIGHBORS = 50_000, 384, 512
TILE = 1024


def measure(data: Path) -> dict[str, object]:
    """N = 50,000, d = 384, 512 a row: products alone, graph, faiss; and growth from 12,500."""
    dtype = screening_dtype(torch.device("cpu"))
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, DIM), torch.randn(ROWS, DIM)
    a, b = x.to(dtype), y.to(dtype)
    _graph(x[:2000], y[:2000])  # compiles
    alone, built, small = [], [], []
    for _ in range(3):  # in turn, so that a slow minute slows all of them
        alone.append(seconds(lambda: products(a, b)))
        built.append(seconds(lambda: _graph(x, y)))
        small.append(seconds(lambda: _graph(x[: ROWS // 4], y[: ROWS // 4])))
    figures: dict[str, object] = {
        "screening type": str(dtype),
        "seconds, products alone": statistics.median(alone),
        "seconds, graph": statistics.median(built),
        "graph at share of the products' speed (goal 0.5)": statistics.median(
            one / two for one, two in zip(alone, built, strict=True)
        ),
        "growth from 12,500 rows: N to the (goal 2.1)": math.log(
            statistics.median(two / one for one, two in zip(small, built, strict=True)), 4
        ),
    }
    try:
        import faiss
    except ImportError:
        return {**figures, "faiss": "not installed"}
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(DIM)
    index.add(torch.nn.functional.normalize(y).numpy())
    queries = torch.nn.functional.normalize(x).numpy()
    searched = seconds(lambda: index.search(queries, NEIGHBORS))
    figures["seconds, faiss-cpu IndexFlatIP search"] = searched
    figures["times faster than faiss (goal 4)"] = searched / statistics.median(built)
    return figures


def _graph(x: torch.Tensor, y: torch.Tensor) -> None:
    embeddings = Embeddings.from_arrays(x.numpy(), y.numpy())
    build_graph(embeddings, NEIGHBORS * len(x), Runtime(device="cpu"), weights=False)


def products(a: torch.Tensor, b: torch.Tensor) -> None:
    """X Y^T in tiles that stay in cache, kept nowhere."""
    out = torch.empty(TILE, TILE, dtype=a.dtype)
    for rows in a.split(TILE):
        for columns in b.split(TILE):
            torch.mm(rows, columns.T, out=out.resize_(len(rows), len(columns)))


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
