"""Rows against all rows on any device, at any temperature, and with mined negatives.

A block of rows meets the tiles of all rows of the other side in both directions. Each tile updates
running log-sum-exps (Milakov and Gimelshein 2018, Online normalizer calculation for softmax) and
the largest logits so far.
"""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch

from batchplan.quality.losses.largest import key_room, largest
from batchplan.quality.measured import Found, GlobalStatistics, Needed
from batchplan.quality.pairs import Pairs, meet
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime
from batchplan.typing import Int64Array

_QUERIES = 1024  # rows of a tile: with 1024 columns a float32 tile is 4 MB and stays in the cache
_FEWEST_QUERIES = 16
_COLUMNS = {"cpu": 1024, "cuda": 8192}
_LOWEST = torch.finfo(torch.float32).min


def streamed_statistics(
    pairs: Pairs,
    wanted: Needed,
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


def _against_all(pairs: Pairs, own: Int64Array, wanted: Needed, ways: int) -> list[Found]:
    """Return the results of the rows ``own``, x to y and y to x, without the padding of blocks."""
    x, guard, tau, device, count = pairs.x, pairs.guard, pairs.temperature, pairs.x.device, len(own)
    here = cache(partial(MeasuredRows.some, indices=own))
    rows = torch.from_numpy(own).to(device)
    nothing = torch.full((ways, count), -torch.inf, dtype=torch.float64, device=device)
    sums, allowed = nothing, nothing.clone()
    best = [largest(count, wanted.kept, device) for _ in range(ways)]
    broken = torch.zeros(count, dtype=torch.int64, device=device)
    for first, last in spans(x.num_rows, _COLUMNS.get(device.type, 1024)):
        columns = torch.arange(first, last, device=device)
        there = cache(partial(MeasuredRows.block, start=first, stop=last))
        logits, *judged = meet(pairs, here, there, rows, columns)
        masked = None
        if guard is not None:
            masked = guard.reasons(rows, columns, *judged)["any"]
            broken += masked.sum(dim=1)
        itself = rows[:, None] == columns
        for way, values in enumerate(logits[:ways]):
            values.masked_fill_(itself, -torch.inf)
            best[way].offer(values.contiguous(), first)
            sums[way] = torch.logaddexp(sums[way], log_sums(values))
            if masked is not None:
                values.masked_fill_(masked, -torch.inf)
                allowed[way] = torch.logaddexp(allowed[way], log_sums(values, consume=True))
    positive = torch.linalg.vecdot(here(x).double(), here(pairs.y).double())[:count] / tau
    with_own = pairs.mined.with_own(positive, x, own, tau), positive
    found = []
    for way in range(ways):
        values, columns = best[way].sorted()
        others = sums[way]
        kept = others if guard is None else allowed[way]
        found.append(Found(positive, with_own[way], others, kept, broken, values.double(), columns))
    return found


def log_sums(values: torch.Tensor, *, consume: bool = False) -> torch.Tensor:
    """Return the log-sum-exp of each row of a tile, float64 (R,), -inf for a row without a value.

    Nothing overflows or vanishes at any temperature.

    Args:
        values: float32 or float64 (R, C), each below 3e38; -inf is ignored.
        consume: whether ``values`` may be overwritten.
    """
    # Finite, so that (-inf) - peak is -inf and not NaN for masked entries.
    peak = values.amax(1, keepdim=True).clamp_(min=_LOWEST)
    scaled = torch.sub(values, peak, out=values if consume else None).exp_()
    return peak[:, 0].double() + scaled.sum(1).double().log()


def _block_rows(n: int, ways: int, wanted: Needed, dim: int, runtime: Runtime) -> int:
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
