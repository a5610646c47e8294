"""Approximate neighbours from a plan: those in the batches most similar to the batch of a row.

A plan of similar rows is an index, like the cells of an inverted file (Jegou, Douze and Schmid,
"Product Quantization for Nearest Neighbor Search", 2011). A row is compared with the rows of a few
batches instead of all N rows; a batch is compared with the centres of all N / B batches.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from batchplan.guard.guard import Guard
from batchplan.guard.rules import breaks
from batchplan.kernels import insert, njit
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order
from batchplan.typing import Int64Array

PROBED = 16  # batches to search, in addition to the own batch
_ENTRIES = 1 << 22  # of a tile of similarities


@full_float32()
def probed_neighbors(
    x: torch.Tensor,
    y: torch.Tensor,
    rows: Int64Array,
    offsets: Int64Array,
    k: int,
    guard: Guard,
    runtime: Runtime,
    judge: tuple[torch.Tensor, torch.Tensor] | None = None,
    negatives: Sequence[torch.Tensor] = (),
) -> Int64Array:
    """The most similar y of every x among the rows of the nearest batches: N (N / B + 16 B) d
    multiply-adds.

    Args:
        x, y: float32 (N, d) on the CPU.
        rows: int64 (N,), a permutation of all rows, batch after batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        k: neighbours per row.
        guard: excludes rows of the same group, equal rows and pairs with too high an s_ij.
        runtime: progress.
        judge: float32 (N, d') each, the rows of the guard's reference, if it has one.
        negatives: float32 (N, d) each, mined negatives; the most similar document of a row counts.

    Returns:
        int64 (N, k), -1 where there are fewer; ties go to the earlier row of ``rows``.
    """
    out = np.full((len(rows), k), -1, np.int64)
    none = torch.empty((0, 0))  # without rows, the rules check s_ij alone
    sides = (side.numpy() for side in judge or (none, none))
    no_negatives = np.empty((0, 0, 0), np.float32)
    rules = (*guard.compiled(), *sides, no_negatives, judge is not None)
    count = len(offsets) - 1
    with runtime.stage("probe", count) as advance:
        own, others = (_centres(side, rows, offsets) for side in (x, y))

        def work(batch: int) -> None:
            likeness = others @ own[batch] + own @ others[batch]
            likeness[batch] = torch.inf
            near = torch.sort(likeness, descending=True, stable=True).indices[: PROBED + 1]
            spans = [rows[offsets[b] : offsets[b + 1]] for b in np.sort(near.numpy())]
            keys = np.concatenate(spans)
            members = rows[offsets[batch] : offsets[batch + 1]]
            key_rows = [side[torch.from_numpy(keys)] for side in (y, *negatives)]
            step = max(1, _ENTRIES // len(keys))
            for some in np.split(members, range(step, len(members), step)):
                own_rows = x[torch.from_numpy(some)]
                tile = own_rows @ key_rows[0].T
                for mined in key_rows[1:]:
                    torch.maximum(tile, own_rows @ mined.T, out=tile)
                _nearest(tile.numpy(), some, keys, rules, out)

        for _ in in_order(work, range(count)):
            advance(1)
    return out


def _centres(side: torch.Tensor, rows: Int64Array, offsets: Int64Array) -> torch.Tensor:
    """float32 (batches, d): the mean row of each batch."""
    bounds = pairwise(offsets)
    return torch.stack([side[torch.from_numpy(rows[a:b])].mean(dim=0) for a, b in bounds])


@njit
def _nearest(tile, members, keys, rules, out):  # type: ignore[no-untyped-def]
    k = out.shape[1]
    best = np.empty(k, np.float32)
    columns = np.empty(k, np.int64)
    for r in range(members.size):
        i = members[r]
        best[:] = -np.inf
        columns[:] = -1
        for c in range(keys.size):
            value, j = tile[r, c], keys[c]
            if value > best[k - 1] and i != j and not breaks(i, j, value, rules):
                insert(value, c, best, columns)
        for place in range(k):
            if columns[place] >= 0:
                out[i, place] = keys[columns[place]]
