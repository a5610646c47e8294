"""One pass over the rows of X Y^T: what each row's loss would be against all N rows.

The matrix is made tile by tile and never held: a block of query rows meets all key tiles, and each
tile updates a running log-sum-exp and the largest similarities so far.
"""

from collections.abc import Callable

import numpy as np
import torch

from batchplan.quality.measured import HARDEST_KEPT, GlobalStatistics
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.quality.running import RunningLogSumExp, hardest
from batchplan.runtime import Runtime, full_float32

_QUERIES = 1024  # rows of a tile: with 1024 columns a float32 tile is 4 MB and stays in the cache
_FEWEST_QUERIES = 16
_COLUMNS = {"cpu": 1024, "cuda": 8192}


def global_statistics(
    queries: MeasuredRows,
    keys: MeasuredRows,
    *,
    temperature: float,
    batch_size: int,
    runtime: Runtime,
    advance: Callable[[int], None],
) -> GlobalStatistics:
    """Stream all of (queries)(keys)^T once.

    Args:
        queries, keys: N rows each, row i of one being the positive of row i of the other.
        temperature: tau.
        batch_size: k of the oracle.
        runtime: the memory that this may take.
        advance: told of query rows done.

    Raises:
        ResourceError: the statistics of N rows, or of one small block of them, do not fit.
    """
    n = queries.num_rows
    negatives = min(batch_size - 1, n - 1)
    found = min(HARDEST_KEPT, n - 1)
    # A batch of all rows has the global loss; keeping every value would only cost memory.
    kept = max(found, negatives if negatives < n - 1 else 0)
    step = _block_rows(n, found, kept, queries.dim, runtime)
    positive, peak, log_sum, oracle = np.empty((4, n))
    columns = np.empty((n, found), np.int64)
    for start, stop in spans(n, step):
        at = slice(start, stop)
        own = queries.block(start, stop)
        pairs = torch.linalg.vecdot(own.double(), keys.block(start, stop).double())
        pairs = pairs[: stop - start] / temperature
        running, best, which = _stream(own / temperature, keys, start, stop, kept)
        others = running.result()[: stop - start]
        positive[at] = pairs.cpu().numpy()
        peak[at] = torch.maximum(running.peak[: stop - start], pairs).cpu().numpy()
        log_sum[at] = torch.logaddexp(others, pairs).cpu().numpy()
        if negatives < n - 1:
            others = best[: stop - start, :negatives].double().logsumexp(dim=1)
        oracle[at] = torch.logaddexp(others, pairs).cpu().numpy()
        columns[at] = which[: stop - start, :found].cpu().numpy()
        advance(stop - start)
    return GlobalStatistics(positive, peak, log_sum, oracle, columns)


def _stream(
    own: torch.Tensor, keys: MeasuredRows, start: int, stop: int, kept: int
) -> tuple[RunningLogSumExp, torch.Tensor, torch.Tensor]:
    """The negatives' log-sum-exp, and the ``kept`` largest with their columns, of one block.

    ``own`` are the query rows start to stop over the temperature, then padding.
    """
    device = own.device
    width = _COLUMNS.get(device.type, 1024)
    running = RunningLogSumExp((len(own),), device)
    best = hardest(len(own), kept, device)
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
    return running, *best.sorted()


def _block_rows(n: int, found: int, kept: int, dim: int, runtime: Runtime) -> int:
    """Query rows of a block that fits the memory."""
    results = n * (4 + found) * 8
    a_row = 4 * dim + 2 * 4 * _COLUMNS["cpu"] + 2 * kept * 12 + 128
    runtime.require_memory(
        results + _FEWEST_QUERIES * a_row,
        f"evaluate: {n} rows with {kept} hard negatives each",
        "evaluate a smaller batch size or less data",
    )
    left = runtime.memory_left() - results
    fitting = left // a_row // _FEWEST_QUERIES * _FEWEST_QUERIES
    return max(_FEWEST_QUERIES, min(_QUERIES, fitting))
