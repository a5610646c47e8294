"""Compares rows with all N rows: losses, hardest negatives and pairs that break a guard.

The matrix of similarities is computed tile by tile and never stored. On a CPU, compiled kernels
process the tiles (`tiles`). Devices, mined negatives, huge batches and temperatures whose
exponentials would leave the range of float64 use `streams`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from batchplan.quality.losses.exponentials import scale_of
from batchplan.quality.losses.streams import streamed_statistics
from batchplan.quality.losses.tiles import MOST_KEPT, tiled_statistics
from batchplan.quality.measured import GlobalStatistics, Needed
from batchplan.quality.pairs import Pairs
from batchplan.runtime import Runtime, full_float32


def global_statistics(
    pairs: Pairs,
    batch_size: int,
    runtime: Runtime,
    advance: Callable[[int], None],
    rows: NDArray[np.int64] | None = None,
) -> tuple[GlobalStatistics, GlobalStatistics]:
    """Return the statistics x to y, and y to x (the same object if the pairs are alike).

    Args:
        pairs: of N rows.
        batch_size: of the oracle.
        runtime: limits the memory.
        advance: called with the number of rows done, N in all.
        rows: int64 (S,), the rows whose statistics are wanted, in any order; None for all N.

    Raises:
        ResourceError: the statistics of N rows, or of one small block of them, do not fit.
    """
    wanted = Needed.of(pairs.num_rows, batch_size)
    tiled = pairs.x.device.type == "cpu" and not pairs.mined and wanted.kept <= MOST_KEPT
    scale = scale_of(pairs.temperature, pairs.bound) if tiled else None
    with full_float32():
        if scale is None:
            return streamed_statistics(pairs, wanted, runtime, advance, rows)
        return tiled_statistics(pairs, wanted, scale, runtime, advance, rows)
