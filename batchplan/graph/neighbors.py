"""The k most similar rows of every row, exactly, in one streaming pass over tiles of X Y^T."""

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows, load_rows
from batchplan.errors import InputError
from batchplan.guard.guard import Guard
from batchplan.guard.rules import Rules, breaks, needs_both_ways, rules_of
from batchplan.kernels import insert, njit
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_blocks

_TILE = 1024  # rows and columns; the product stays in cache until it is scanned


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


@full_float32()
def nearest_neighbors(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    guard: Guard | None = None,
) -> Neighbors:
    """The exact k nearest neighbours of every row: N^2 d multiply-adds, N k results.

    Args:
        embeddings: N pairs of d dimensions.
        k: neighbours a row, from 1 to N - 1.
        runtime: device, memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        guard: two rows that break it are no neighbours.

    Returns:
        Indices in int64.

    Raises:
        InputError: k out of range, or a zero row under cosine.
        ResourceError: the neighbours do not fit the memory budget, or there is no such device.
    """
    n, d = embeddings.y.shape
    if not 1 <= k < n:
        raise InputError(f"neighbors: got {k}, expected from 1 to {n - 1}, as there are {n} rows")
    embeddings.require_similarities(similarity)
    normalize = similarity == "cosine"
    matrices = 1 + needs_both_ways(guard, embeddings)
    need = n * (12 * k + 4 * d * matrices) + (64 << 20)
    runtime.require_memory(need, f"{k} nearest neighbours of each of {n} rows", "ask for fewer")
    device = runtime.torch_device()
    keys = load_all_rows(embeddings.y, device, normalize)
    found = Neighbors(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
    scan = _scan_cpu if device.type == "cpu" else _scan_torch
    rules = rules_of(guard, embeddings, keys, normalize)

    def work(start: int, stop: int) -> None:
        rows = load_rows(embeddings.x, start, stop, device, normalize)
        scan(rows, keys, start, found.indices[start:stop], found.similarities[start:stop], rules)

    with runtime.stage("neighbors", n) as advance:
        in_blocks(work, n, _TILE, advance, device)
    return found


def _scan_cpu(
    rows: torch.Tensor,
    keys: torch.Tensor,
    first_row: int,
    indices: NDArray[np.int64],
    similarities: NDArray[np.float32],
    rules: Rules,
) -> None:
    compiled = rules.compiled()
    similarities.fill(-np.inf)
    indices.fill(-1)
    for first in range(0, keys.shape[0], _TILE):
        tile = rows @ keys[first : first + _TILE].T
        _offer(tile.numpy(), first_row, first, indices, similarities, compiled)


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
    width = max(32 * _TILE, k)
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


@njit
def _offer(  # type: ignore[no-untyped-def]
    tile, first_row, first_column, indices, similarities, rules
):
    """Insert a tile's entries into each row's sorted list; columns come in ascending order, so an
    entry equal to the last one kept loses."""
    height, width = tile.shape
    k = indices.shape[1]
    for r in range(height):
        kept, names = similarities[r], indices[r]
        for c in range(width):
            value = tile[r, c]
            if value <= kept[k - 1] or first_column + c == first_row + r:
                continue
            if breaks(first_row + r, first_column + c, value, rules):
                continue
            insert(value, first_column + c, kept, names)
