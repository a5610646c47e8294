"""The k most similar rows of every row, exactly, in one pass over tiles of X Y^T.

On the CPU a tile of low precision serves both directions (`neighbor_search`); other devices take a
direction at a time.
"""

from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows, load_rows
from batchplan.errors import InputError
from batchplan.graph.neighbor_search import TILE, Search, search
from batchplan.graph.screen import load_keys, screening_dtype
from batchplan.guard.guard import Guard
from batchplan.guard.rules import Rules, needs_both_ways, rules_of
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_blocks

_FIXED = 64 << 20  # bytes: kernels, samples
_A_THREAD = 48 << 20  # bytes: a tile, its candidates and those of the sample
_A_ROW = 16  # bytes: floors, bars and limits


@dataclass(frozen=True, eq=False)
class Neighbors:
    """For each row i rows j with the largest x_i . y_j, j != i.

    Attributes:
        indices: int64 or int32 (N, k), distinct, most similar first, of equal ones the lower index
            first.
        similarities: float32 (N, k), of those.

    Where a guard leaves a row fewer than k neighbours, the last are -1, of similarity -inf.
    """

    indices: NDArray[Any]
    similarities: NDArray[np.float32]

    def mean_similarity(self) -> float:
        """Over all neighbours of all rows; nan where there are none."""
        values = self.similarities
        if (self.indices[:, -1] < 0).any():
            values = values[self.indices >= 0]
        return float(values.mean(dtype=np.float64)) if values.size else nan


def nearest_neighbors(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    guard: Guard | None = None,
) -> Neighbors:
    """The exact k nearest y of every x: N^2 d multiply-adds, half as many where y is x; N k
    results.

    Args:
        embeddings: N pairs of d dimensions.
        k: neighbours a row, from 1 to N - 1.
        runtime: device, memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        guard: two rows that break it are no neighbours.

    Returns:
        Indices in int64. On the CPU similarities are float64 products of the float32 rows, rounded.

    Raises:
        InputError: k out of range, or a zero row under cosine.
        ResourceError: the neighbours do not fit the memory budget, or there is no such device.
    """
    return _neighbors(embeddings, k, runtime, similarity, guard, False)[0]


def neighbors_both_ways(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    guard: Guard | None = None,
) -> list[Neighbors]:
    """The exact k nearest y of every x and, where y is another matrix, the k nearest x of every y.

    The arguments and errors are those of `nearest_neighbors`; on the CPU so is the work.
    """
    return _neighbors(embeddings, k, runtime, similarity, guard, embeddings.paired)


@full_float32()
def _neighbors(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    similarity: str,
    guard: Guard | None,
    both: bool,
) -> list[Neighbors]:
    n = embeddings.num_rows
    if not 1 <= k < n:
        raise InputError(f"neighbors: got {k}, expected from 1 to {n - 1}, as there are {n} rows")
    embeddings.require_similarities(similarity)
    search_on = _on_cpu if runtime.torch_device().type == "cpu" else _on_device
    return search_on(embeddings, k, runtime, similarity == "cosine", guard, both)


def _on_cpu(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    normalize: bool,
    guard: Guard | None,
    both: bool,
) -> list[Neighbors]:
    n, d = embeddings.y.shape
    device, dtype = torch.device("cpu"), screening_dtype(torch.device("cpu"))
    matrices = 1 + needs_both_ways(guard, embeddings)
    rows = 4 * d * matrices + (d + 4) * dtype.itemsize + _A_ROW * (1 + both)
    need = n * (12 * k * (1 + both) + rows) + _FIXED + _A_THREAD * torch.get_num_threads()
    runtime.require_memory(need, f"{k} nearest neighbours of each of {n} rows", "ask for fewer")
    with runtime.stage("neighbors", n) as advance:
        keys = load_keys(embeddings, device, dtype, normalize, lambda _rows: None)
        rules = rules_of(guard, embeddings, keys.rows, normalize)
        problem = Search(embeddings.x, keys, normalize, rules)
        lists = [problem.lists(k) for _ in range(1 + both)]
        backward = None if embeddings.paired and not both else lists[-1]
        search(problem, lists[0], backward, advance)
        for one in lists:
            in_blocks(one.sort, n, TILE, lambda _rows: None)
    return [Neighbors(one.names, one.scores) for one in lists]


def _on_device(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    normalize: bool,
    guard: Guard | None,
    both: bool,
) -> list[Neighbors]:
    n, d = embeddings.y.shape
    device = runtime.torch_device()
    matrices = 1 + needs_both_ways(guard, embeddings)
    need = n * (12 * k * (1 + both) + 4 * d * matrices) + _FIXED
    runtime.require_memory(need, f"{k} nearest neighbours of each of {n} rows", "ask for fewer")
    swapped = replace(embeddings, x=embeddings.y, y=embeddings.x)
    lists = []
    with runtime.stage("neighbors", n * (1 + both)) as advance:
        for side in [embeddings, swapped][: 1 + both]:
            keys = load_all_rows(side.y, device, normalize)
            rules = rules_of(guard, side, keys, normalize)
            lists.append(Neighbors(np.empty((n, k), np.int64), np.empty((n, k), np.float32)))
            for start in range(0, n, TILE):
                stop = min(start + TILE, n)
                rows = load_rows(side.x, start, stop, device, normalize)
                best, scores = lists[-1].indices[start:stop], lists[-1].similarities[start:stop]
                _scan_torch(rows, keys, start, best, scores, rules)
                advance(stop - start)
    return lists


def _scan_torch(
    rows: torch.Tensor,
    keys: torch.Tensor,
    first_row: int,
    indices: NDArray[np.int64],
    similarities: NDArray[np.float32],
    rules: Rules,
) -> None:
    k = indices.shape[1]
    device = rows.device
    best = torch.full((len(rows), k), -torch.inf, device=device)
    which = torch.full((len(rows), k), -1, device=device)
    width = max(32 * TILE, k)
    for first in range(0, keys.shape[0], width):
        tile = rows @ keys[first : first + width].T
        columns = torch.arange(first, first + tile.shape[1], device=device)
        own = columns == torch.arange(first_row, first_row + len(rows), device=device)[:, None]
        tile[own] = -torch.inf
        rules.mask(tile, first_row, first)
        # A stable sort keeps the lower index first among equals; topk promises no order.
        both = torch.cat([best, tile], dim=1)
        best, order = (
            part[:, :k] for part in torch.sort(both, dim=1, descending=True, stable=True)
        )
        names = torch.cat([which, columns.expand(len(rows), -1)], dim=1)
        which = names.gather(1, order)
    indices[:] = which.cpu().numpy()
    similarities[:] = best.cpu().numpy()
