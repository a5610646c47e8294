"""Rows against all rows on any device, at any temperature, and with mined negatives.

A block of rows meets the tiles of all rows of the other side in both directions. Each tile updates
running log-sum-exps and the largest logits so far.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from batchplan.quality.losses.largest import key_room, largest
from batchplan.quality.losses.running import RunningLogSumExp
from batchplan.quality.measured import Found, GlobalStatistics, Wanted
from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_QUERIES = 1024  # rows of a tile: with 1024 columns a float32 tile is 4 MB and stays in the cache
_FEWEST_QUERIES = 16
_COLUMNS = {"cpu": 1024, "cuda": 8192}


def streamed_statistics(
    pairs: Pairs,
    wanted: Wanted,
    runtime: Runtime,
    advance: Callable[[int], None],
    rows: Int64Array | None,
) -> tuple[GlobalStatistics, GlobalStatistics]:
    """See `all_rows.global_statistics`."""
    n = pairs.num_rows
    names = np.arange(n) if rows is None else rows
    count, ways = len(names), 1 if pairs.alike else 2
    out = [GlobalStatistics.empty(count, wanted) for _ in range(ways)]
    for start, stop in spans(count, _block_rows(count, ways, wanted, pairs.x.dim, runtime)):
        found = _against_all(pairs, names[start:stop], wanted, ways)
        for side, results in zip(out, found, strict=True):
            side.fill(slice(start, stop), results, wanted)
        advance(stop * n // count - start * n // count)
    return out[0], out[-1]


def _against_all(pairs: Pairs, own: Int64Array, wanted: Wanted, ways: int) -> list[Found]:
    """Return the results of the rows ``own``, x to y and y to x, without the padding of blocks."""
    x, y, mined, guard, tau = pairs.x, pairs.y, pairs.mined, pairs.guard, pairs.temperature
    device, count = x.device, len(own)
    x_own, y_own = x.some(own), y.some(own)
    judge_own = None if guard is None or guard.own else (guard.x.some(own), guard.y.some(own))
    rows = torch.from_numpy(own).to(device)
    sums, allowed = ([RunningLogSumExp((count,), device) for _ in range(ways)] for _ in range(2))
    best = [largest(count, wanted.kept, device) for _ in range(ways)]
    broken = torch.zeros(count, dtype=torch.int64, device=device)
    for first, last in spans(x.num_rows, _COLUMNS.get(device.type, 1024)):
        tile = slice(count), slice(last - first)
        x_keys, y_keys = x.block(first, last), y.block(first, last)
        columns = torch.arange(first, last, device=device)
        forth = (x_own @ y_keys.T)[tile]
        back = forth if y is x else (y_own @ x_keys.T)[tile]
        highest, logits = torch.maximum(forth, back), [forth / tau, back / tau]
        if mined:
            there = partial(MeasuredRows.block, start=first, stop=last)
            logits[0], most = mined.meet(x_own, there, columns, forth, tau)
            here = partial(MeasuredRows.some, indices=own)
            highest = torch.maximum(most, mined.meet(x_keys, here, rows, back.mT, tau)[1].mT)
            highest = highest.maximum(back)
        itself = rows[:, None] == columns
        masked = None
        if guard is not None:
            if judge_own is not None:
                judge_x, judge_y = guard.x.block(first, last), guard.y.block(first, last)
                highest = torch.maximum(judge_own[0] @ judge_y.T, judge_own[1] @ judge_x.T)[tile]
            masked = guard.broken(rows, columns, highest)
            broken += masked.sum(dim=1)
        for way, values in enumerate(logits[:ways]):
            values.masked_fill_(itself, -torch.inf)
            best[way].offer(values.contiguous(), first)
            sums[way].add(values, 1, slice(None))
            if masked is not None:
                values.masked_fill_(masked, -torch.inf)
                allowed[way].add(values, 1, slice(None), consume=True)
    positive = torch.linalg.vecdot(x_own.double(), y_own.double())[:count] / tau
    with_own = mined.with_own(positive, x, own, tau), positive
    found = []
    for way in range(ways):
        values, columns = best[way].sorted()
        others = sums[way].result()
        kept = others if guard is None else allowed[way].result()
        found.append(Found(positive, with_own[way], others, kept, broken, values.double(), columns))
    return found


def _block_rows(n: int, ways: int, wanted: Wanted, dim: int, runtime: Runtime) -> int:
    """Return how many query rows of a block fit into memory."""
    results = ways * n * (6 + wanted.hardest) * 8
    row_bytes = 8 * dim + 6 * 4 * _COLUMNS["cpu"] + ways * 2 * 8 * key_room(wanted.kept) + 128
    runtime.require_memory(
        results + _FEWEST_QUERIES * row_bytes,
        f"evaluate: {n} rows with {wanted.kept} hard negatives each",
        "evaluate a smaller batch size or less data",
    )
    left = runtime.memory_left() - results
    fitting = left // row_bytes // _FEWEST_QUERIES * _FEWEST_QUERIES
    return max(_FEWEST_QUERIES, min(_QUERIES, fitting))
