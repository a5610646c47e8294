"""Some rows against all rows of the other side, on the CPU.

Threads take blocks of all rows, each of which meets the sampled rows tile by tile. So all rows are
read once, however many are sampled. As in `both_ways`, the bytes of the result do not depend on the
number of threads: each block sums its own exponentials, and these are added in order.
"""

from collections.abc import Callable
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.losses.both_ways import BLOCK_COLUMNS, BLOCK_ROWS, State
from batchplan.quality.losses.exponentials import Scale, take_in
from batchplan.quality.losses.largest import key_room
from batchplan.quality.measured import GlobalStatistics, Wanted
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order


def sampled_statistics(
    rows: NDArray[np.int64],
    queries: MeasuredRows,
    keys: MeasuredRows,
    temperature: float,
    scale: Scale,
    wanted: Wanted,
    runtime: Runtime,
    advance: Callable[[int], None],
) -> GlobalStatistics:
    """The statistics of the rows ``rows``, int64 (S,), of ``queries`` against all ``keys``.

    Args:
        scale: `exponentials.scale_of` the temperature.
        advance: called with the number of keys done.

    Raises:
        ResourceError: not enough memory.
    """
    count, n = len(rows), keys.num_rows
    _require_memory(count, wanted, keys, runtime)
    own = queries.some(rows)
    state = State(count, wanted.kept)
    nothing = State(BLOCK_ROWS, 0)
    tiles = spans(count, BLOCK_COLUMNS)
    locks = [Lock() for _ in tiles]

    def meet(start: int) -> tuple[int, NDArray[np.float64]]:
        stop = min(start + BLOCK_ROWS, n)
        block = keys.block(start, stop)
        gains = np.zeros(len(state.sums))
        buffer = torch.empty(len(block) * BLOCK_COLUMNS)
        for lock, (first, last) in zip(locks, tiles, strict=True):
            some = own[first : last + -last % 64]
            tile = buffer[: len(block) * len(some)].view(len(block), len(some))
            torch.mm(block, some.T, out=tile)
            values = tile.numpy()[: stop - start]
            (itself,) = np.nonzero((rows[first:last] >= start) & (rows[first:last] < stop))
            values[rows[first + itself] - start, itself] = -np.inf
            at = first, first + len(some)
            # Columns are not numbered by row: from ``n`` on, none is taken for that of its own row.
            by_row = 0, nothing.sums[: len(values)], nothing.part(0, len(values))
            with lock:
                by_column = wanted.kept, gains[slice(*at)], state.part(*at)
                take_in(values, last - first, start, n, scale, *by_row, *by_column)
        return stop - start, gains

    with full_float32():
        for done, gains in in_order(meet, range(0, n, BLOCK_ROWS)):
            state.sums += gains
            advance(done)
    positive = torch.linalg.vecdot(own.double(), keys.some(rows).double())[:count] / temperature
    best, columns = state.largest.sorted(0, count)
    others = torch.from_numpy(state.sums[:count]).log()
    out = GlobalStatistics.empty(count, wanted.hardest)
    out.fill(slice(0, count), positive, others, best.double() / temperature, columns, wanted)
    return out


def _require_memory(count: int, wanted: Wanted, keys: MeasuredRows, runtime: Runtime) -> None:
    threads = torch.get_num_threads()
    row_bytes = 4 * keys.dim * 4 + 3 * 8 * key_room(wanted.kept) + 8 * (3 * threads + 2)
    tiles = threads * 4 * BLOCK_ROWS * (BLOCK_COLUMNS + 4 * keys.dim)
    runtime.require_memory(
        count * row_bytes + tiles,
        f"evaluate: {count} sampled rows with {wanted.kept} hard negatives each",
        "evaluate with a smaller --sample",
    )
