"""Extra negatives of finished batches, which all rows of a batch share.

As in B3++ (Thirukovalluru et al. 2025, arXiv 2505.11293): rows outside the batch, drawn by how
often they are in the windows of nearest neighbours of its rows.
"""

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.graph.counter_random import stream, unit
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.guard import Guard
from batchplan.guard.rules import both_sides, breaks, exact_dot, rules_of
from batchplan.kernels import njit
from batchplan.planners.partition.layout import Int64Array
from batchplan.planners.partition.options import PartitionOptions
from batchplan.plans.plan import Plan
from batchplan.runtime import Runtime

_NO_ROWS = torch.empty((0, 0))
_EXTRA = 10  # the generator stream of extra negatives


def extra_negatives(
    plan: Plan,
    embeddings: Embeddings,
    guard: Guard,
    options: PartitionOptions,
    runtime: Runtime,
) -> Int64Array:
    """Draw H rows for each batch, without repeats: N^2 d multiply-adds for the windows, 12 N k
    bytes for k neighbours, and 8 N d bytes with a limit.

    Args:
        plan: finished batches of the N rows.
        embeddings: N pairs of d dimensions.
        guard: no row is drawn that breaks it with a row of the batch.
        options: H, and the rank window or number of neighbours.
        runtime: device (of the neighbours), memory budget, seed.

    Returns:
        int64 (batches, H), rows in the order in which they were drawn; -1 where the windows hold no
        more.

    Raises:
        ResourceError: not enough memory, or no such device.
    """
    skipped, taken = options.window()
    k, how = min(skipped + taken, embeddings.num_rows - 1), options.similarity
    ranked = nearest_neighbors(embeddings, k, runtime, similarity=how, guard=guard)
    windows = np.ascontiguousarray(ranked.indices[:, skipped:], np.int64)
    x = y = np.empty((0, 0), np.float32)
    rules = rules_of(Guard(None, guard.apart), embeddings, _NO_ROWS, False)
    if guard.ceilings is not None:
        sides = both_sides(embeddings, _NO_ROWS.device, how == "cosine")
        x, y = (side.numpy() for side in sides)
        rules = rules_of(guard, embeddings, sides[1], how == "cosine")
    key = runtime.generator(_EXTRA).integers(2**64, dtype=np.uint64)
    out = np.full((plan.num_batches, options.extra_negatives or 0), -1, np.int64)
    with runtime.stage("extra negatives"):
        # Copies, since kernels would be compiled again for read-only arrays.
        batches = plan.rows.copy(), plan.batch_offsets.copy()
        _draw_all(*batches, windows, key, rules.compiled(), x, y, out)
    return out


@njit
def _draw_all(rows, offsets, windows, key, rules, x, y, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` in weighted draws without replacement: the largest u^(1/w) come first, with u
    random and w the weight (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
    2006)."""
    n = len(windows)
    holder = np.full(n, -1, np.int64)  # the last batch that holds a row
    weights = np.zeros(n, np.int64)
    for b in range(len(out)):
        own = rows[offsets[b] : offsets[b + 1]]
        holder[own] = b
        found = np.empty(own.size * windows.shape[1], np.int64)
        count = 0
        for i in own:
            for j in windows[i]:
                if j < 0 or holder[j] == b:
                    continue
                if weights[j] == 0:
                    found[count] = j
                    count += 1
                weights[j] += 1
        found = np.sort(found[:count])
        draws, batch_key = np.empty(count), stream(key, b)
        for place in range(count):
            j = found[place]
            draws[place] = -np.log(unit(batch_key, j)) / weights[j]
            weights[j] = 0
        taken = 0
        for place in np.argsort(draws, kind="mergesort"):
            if taken == out.shape[1]:
                break
            if not _breaks_any(own, found[place], rules, x, y):
                out[b, taken] = found[place]
                taken += 1


@njit
def _breaks_any(own, j, rules, x, y):  # type: ignore[no-untyped-def]
    for i in own:
        value = np.float32(0)
        if len(x) > 0 and not rules[5]:
            value = exact_dot(x[i], y[j])
        if breaks(i, j, value, rules):
            return True
    return False
