"""One pass over X Y^T: the loss of each row against all N rows, in both directions.

Or of some rows: then a pass for each direction compares these with all rows of the other side.

The matrix is computed tile by tile and never stored. On the CPU one product serves both directions
(`both_ways`). On other devices, and where exponentials would leave the range of float64, one
direction follows the other: a block of query rows meets all key tiles, and each tile updates a
running log-sum-exp and the largest similarities so far.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.losses.both_ways import MOST_KEPT, BothWays
from batchplan.quality.losses.exponentials import scale_of
from batchplan.quality.losses.largest import key_room, largest
from batchplan.quality.losses.running import RunningLogSumExp
from batchplan.quality.losses.sampled_rows import sampled_statistics
from batchplan.quality.measured import GlobalStatistics, Wanted
from batchplan.quality.mined import Mined, no_mined
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime, full_float32

Int64Array = NDArray[np.int64]

_QUERIES = 1024  # rows of a tile: with 1024 columns a float32 tile is 4 MB and stays in the cache
_FEWEST_QUERIES = 16
_COLUMNS = {"cpu": 1024, "cuda": 8192}


def global_statistics(
    x: MeasuredRows,
    y: MeasuredRows,
    mined: Mined,
    *,
    bound: float,
    temperature: float,
    batch_size: int,
    runtime: Runtime,
    advance: Callable[[int], None],
    rows: Int64Array | None = None,
) -> tuple[GlobalStatistics, GlobalStatistics]:
    """x to y, and y to x (the same object where y is x, without mined negatives).

    Args:
        x, y: N rows each; x_i and y_i are positives of each other.
        mined: mined negatives, which anchors meet from x to y.
        bound: the largest possible abs(x_i . y_j).
        temperature: tau.
        batch_size: k of the oracle.
        runtime: limits the memory.
        advance: called with the number of rows done, N for each direction.
        rows: int64 (S,), the rows whose loss is wanted, in any order; None for all N.

    Raises:
        ResourceError: the statistics of N rows, or of one small block of them, do not fit.
    """
    wanted = Wanted.of(x.num_rows, batch_size)
    fast = x.device.type == "cpu" and wanted.kept <= MOST_KEPT
    scale = scale_of(temperature, bound) if fast else None
    if scale is not None and rows is None and not mined:
        return BothWays(x, y, temperature, scale, wanted, runtime, advance).statistics()

    def one_way(queries: MeasuredRows, keys: MeasuredRows, mined: Mined) -> GlobalStatistics:
        if scale is not None and rows is not None and not mined:
            return sampled_statistics(
                rows, queries, keys, temperature, scale, wanted, runtime, advance
            )
        return _one_way(queries, keys, mined, rows, temperature, wanted, runtime, advance)

    forth = one_way(x, y, mined)
    same = x is y and not mined
    return forth, (forth if same else one_way(y, x, no_mined(x.num_rows)))


def _one_way(
    queries: MeasuredRows,
    keys: MeasuredRows,
    mined: Mined,
    rows: Int64Array | None,
    temperature: float,
    wanted: Wanted,
    runtime: Runtime,
    advance: Callable[[int], None],
) -> GlobalStatistics:
    n = queries.num_rows
    count = n if rows is None else len(rows)
    step = _block_rows(count, wanted, queries.dim, runtime)
    out = GlobalStatistics.empty(count, wanted.hardest)
    for start, stop in spans(count, step):
        if rows is None:
            names = np.arange(start, stop)
            own, pair = (side.block(start, stop) for side in (queries, keys))
        else:
            names = rows[start:stop]
            own, pair = (side.some(names) for side in (queries, keys))
        pairs = torch.linalg.vecdot(own.double(), pair.double())[: stop - start] / temperature
        others, best, columns = _stream(own, keys, mined, names, temperature, wanted.kept)
        itself = mined.with_own(pairs, queries, names, temperature)
        out.fill(slice(start, stop), pairs, others, best.double(), columns, wanted, itself)
        advance(stop * n // count - start * n // count)
    return out


def _stream(
    queries: torch.Tensor,
    keys: MeasuredRows,
    mined: Mined,
    names: Int64Array,
    temperature: float,
    kept: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log-sum-exp of a block's negatives, and the ``kept`` largest logits with their columns.

    ``queries`` has the rows ``names``, then padding.
    """
    own = queries / temperature
    device = own.device
    width = _COLUMNS.get(device.type, 1024)
    running = RunningLogSumExp((len(own),), device)
    best = largest(len(own), kept, device)
    buffer = torch.empty(len(own) * width, device=device)
    with full_float32():
        for first, last in spans(keys.num_rows, width):
            block = keys.block(first, last)
            tile = buffer[: len(own) * len(block)].view(len(own), len(block))
            torch.mm(own, block.T, out=tile)
            if mined:
                numbers = torch.arange(first, last, device=device)
                part = tile[:, : last - first]
                there = partial(MeasuredRows.block, start=first, stop=last)
                part.copy_(mined.meet(own, there, numbers, part, 1.0)[0])
            tile[:, last - first :] = -torch.inf
            (itself,) = np.nonzero((names >= first) & (names < last))
            if len(itself):
                at = torch.from_numpy(np.stack((itself, names[itself] - first))).to(device)
                tile[at[0], at[1]] = -torch.inf
            best.offer(tile, first)
            running.add(tile, 1, slice(None), consume=True)
    values, columns = best.sorted()
    count = len(names)
    return running.result()[:count], values[:count], columns[:count]


def _block_rows(n: int, wanted: Wanted, dim: int, runtime: Runtime) -> int:
    """Query rows of a block that fits into memory."""
    results = n * (4 + wanted.hardest) * 8
    row_bytes = 4 * dim + 2 * 4 * _COLUMNS["cpu"] + 2 * 8 * key_room(wanted.kept) + 128
    runtime.require_memory(
        results + _FEWEST_QUERIES * row_bytes,
        f"evaluate: {n} rows with {wanted.kept} hard negatives each",
        "evaluate a smaller batch size or less data",
    )
    left = runtime.memory_left() - results
    fitting = left // row_bytes // _FEWEST_QUERIES * _FEWEST_QUERIES
    return max(_FEWEST_QUERIES, min(_QUERIES, fitting))
