"""The 16 nearest rows of each row: this project beside what else computes them on a CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.runtime import Runtime
from batchplan.threads import in_order
from tests.benchmarks.speed.data import real_like

ROWS, NEIGHBORS = 25_000, 16
ROUNDS = 3
CHUNK = 1024  # query rows
SPARE = 16  # candidates above the neighbours asked for, where bfloat16 chooses them

Search = Callable[[torch.Tensor, torch.Tensor], NDArray[np.int64]]


def measure(data: Path) -> dict[str, object]:
    """Seconds, times ours, and the share of the true neighbours found; 25,000 real-like pairs."""
    halves = (torch.from_numpy(side).float() for side in real_like(data, ROWS))
    x, y = (torch.nn.functional.normalize(side) for side in halves)
    truth = exact(x, y)
    figures: dict[str, object] = {}
    took: dict[str, list[float]] = {}
    answers: dict[str, NDArray[np.int64]] = {}
    searches = {**PEERS, **_installed()}
    for search in searches.values():
        search(x[:2048], y[:2048])  # compiles, loads
    for _ in range(ROUNDS):  # in turn, so that a slow minute slows all of them
        for name, search in searches.items():
            began = time.perf_counter()
            answers[name] = search(x, y)
            took.setdefault(name, []).append(time.perf_counter() - began)
    ours = took["batchplan"]
    for name, seconds in took.items():
        times = statistics.median(a / b for a, b in zip(seconds, ours, strict=True))
        figures[name] = (
            f"{statistics.median(seconds):.2f} s, {times:.2f} times ours, "
            f"recall {_recall(answers[name], truth):.5f}"
        )
    return figures


def _batchplan(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
    embeddings = Embeddings.from_arrays(x.numpy(), y.numpy())
    return nearest_neighbors(embeddings, NEIGHBORS, Runtime("cpu")).indices


def _torch(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
    """A bfloat16 product, topk with room, and float32 products of the rows that it names."""
    keys = y.bfloat16().T.contiguous()
    return _rescored(x, y, lambda rows: (rows.bfloat16() @ keys).float())


def _torch32(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
    return _rescored(x, y, lambda rows: rows @ y.T)


def _rescored(
    x: torch.Tensor, y: torch.Tensor, product: Callable[[torch.Tensor], torch.Tensor]
) -> NDArray[np.int64]:
    def nearest(start: int) -> NDArray[np.int64]:
        rows = x[start : start + CHUNK]
        tile = product(rows)
        own = torch.arange(len(rows))
        tile[own, own + start] = -torch.inf
        candidates = tile.topk(NEIGHBORS + SPARE, sorted=False).indices
        exact = torch.bmm(y[candidates], rows[:, :, None])[:, :, 0]
        return candidates.gather(1, exact.topk(NEIGHBORS).indices).numpy()

    return np.concatenate(list(in_order(nearest, range(0, len(x), CHUNK))))


def _installed() -> dict[str, Search]:
    """The peers that are installed; `pip install -e '.[bench]'` brings all."""
    peers: dict[str, Search] = {}
    try:
        import faiss

        def flat(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
            faiss.omp_set_num_threads(torch.get_num_threads())
            index = faiss.IndexFlatIP(y.shape[1])
            index.add(y.numpy())
            return _others(index.search(x.numpy(), NEIGHBORS + 1)[1])

        peers["faiss-cpu IndexFlatIP"] = flat
    except ImportError:
        pass
    try:
        import numkong

        def packed(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
            keys = numkong.dots_pack(numkong.from_dlpack(y.bfloat16()), dtype="bf16")

            def product(rows: torch.Tensor) -> torch.Tensor:
                rows = rows.bfloat16()
                return torch.from_dlpack(numkong.dots_packed(numkong.from_dlpack(rows), keys))

            return _rescored(x, y, product)

        peers["numkong, packed bfloat16"] = packed
    except ImportError:
        pass
    try:
        from pynndescent import NNDescent

        def descent(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
            index = NNDescent(y.numpy(), metric="dot", n_neighbors=30, random_state=0)
            return _others(index.query(x.numpy(), NEIGHBORS + 1)[0])

        peers["pynndescent, approximate"] = descent
    except ImportError:
        pass
    return peers


def _others(names: NDArray[Any]) -> NDArray[np.int64]:
    """The first 16 of 17 names of each row that are not the row itself."""
    order = np.argsort(names == np.arange(len(names))[:, None], axis=1, kind="stable")
    return np.take_along_axis(names, order, axis=1)[:, :NEIGHBORS].astype(np.int64)


def exact(x: torch.Tensor, y: torch.Tensor) -> NDArray[np.int64]:
    """In float64."""
    out = []
    for start in range(0, len(x), CHUNK):
        tile = x[start : start + CHUNK].double() @ y.double().T
        own = torch.arange(len(tile))
        tile[own, own + start] = -torch.inf
        out.append(tile.topk(NEIGHBORS).indices.numpy())
    return np.concatenate(out)


def _recall(names: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    both = np.sort(np.concatenate([names, truth], axis=1), axis=1)
    return float((both[:, 1:] == both[:, :-1]).sum() / truth.size)


PEERS: dict[str, Search] = {
    "batchplan": _batchplan,
    "torch, float32 and topk": _torch32,
    "torch, bfloat16, topk and float32": _torch,
}
