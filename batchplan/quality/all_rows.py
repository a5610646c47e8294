"""One pass over X Y^T: the loss of each row against all N rows, in both directions.

The matrix is computed tile by tile and never stored. On the CPU one product serves both directions
(`both_ways`). On other devices, and where exponentials would leave the range of float64, one
direction follows the other: a block of query rows meets all key tiles, and each tile updates a
running log-sum-exp and the largest similarities so far.
"""

from collections.abc import Callable

import torch

from batchplan.quality.both_ways import MOST_KEPT, BothWays
from batchplan.quality.exponentials import scale_of
from batchplan.quality.largest import key_room, largest
from batchplan.quality.measured import GlobalStatistics, Wanted
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.quality.running import RunningLogSumExp
from batchplan.runtime import Runtime, full_float32

_QUERIES = 1024  # rows of a tile: with 1024 columns a float32 tile is 4 MB and stays in the cache
_FEWEST_QUERIES = 16
_COLUMNS = {"cpu": 1024, "cuda": 8192}


def global_statistics(
    x: MeasuredRows,
    y: MeasuredRows,
    *,
    bound: float,
    temperature: float,
    batch_size: int,
    runtime: Runtime,
    advance: Callable[[int], None],
) -> tuple[GlobalStatistics, GlobalStatistics]:
    """x to y, and y to x (the same object where y is x).

    Args:
        x, y: N rows each; x_i and y_i are positives of each other.
        bound: the largest possible abs(x_i . y_j).
        temperature: tau.
        batch_size: k of the oracle.
        runtime: limits the memory.
        advance: called with the number of rows done, for each direction.

    Raises:
        ResourceError: the statistics of N rows, or of one small block of them, do not fit.
    """
    wanted = Wanted.of(x.num_rows, batch_size)
    scale = scale_of(temperature, bound)
    if x.device.type == "cpu" and scale is not None and wanted.kept <= MOST_KEPT:
        return BothWays(x, y, temperature, scale, wanted, runtime, advance).statistics()
    forth = _one_way(x, y, temperature, wanted, runtime, advance)
    return forth, (forth if x is y else _one_way(y, x, temperature, wanted, runtime, advance))


def _one_way(
    queries: MeasuredRows,
    keys: MeasuredRows,
    temperature: float,
    wanted: Wanted,
    runtime: Runtime,
    advance: Callable[[int], None],
) -> GlobalStatistics:
    n = queries.num_rows
    step = _block_rows(n, wanted, queries.dim, runtime)
    out = GlobalStatistics.empty(n, wanted.hardest)
    for start, stop in spans(n, step):
        own = queries.block(start, stop)
        pairs = torch.linalg.vecdot(own.double(), keys.block(start, stop).double())
        pairs = pairs[: stop - start] / temperature
        others, best, columns = _stream(own / temperature, keys, start, stop, wanted.kept)
        out.fill(slice(start, stop), pairs, others, best.double(), columns, wanted)
        advance(stop - start)
    return out


def _stream(
    own: torch.Tensor, keys: MeasuredRows, start: int, stop: int, kept: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log-sum-exp of a block's negatives, and the ``kept`` largest logits with their columns.

    ``own`` has the query rows start to stop over the temperature, then padding.
    """
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
            tile[:, last - first :] = -torch.inf
            if start < last and first < stop:
                own_pairs = torch.arange(max(start, first), min(stop, last), device=device)
                tile[own_pairs - start, own_pairs - first] = -torch.inf
            best.offer(tile, first)
            running.add(tile, 1, slice(None), consume=True)
    count = stop - start
    values, columns = best.sorted()
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
