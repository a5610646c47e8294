"""One product X Y^T on the CPU for both directions: rows of a tile are x to y, columns y to x.

Each thread takes a block of rows at a time, which meets the tiles of all columns. Where y is x, it
meets only the tiles from its own rows on: the columns of a tile give later rows what these would
find in the tiles left out.

The bytes of the result depend neither on the number of threads nor on the memory: blocks and tiles
have fixed sizes, each block sums its own exponentials, and these sums are added to the columns in
the order of the blocks. The largest values do not depend on the order. If those of all columns do
not fit into memory, columns are processed in strips.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.losses.exponentials import STEP, Scale, take_in
from batchplan.quality.losses.largest import Largest, key_room
from batchplan.quality.measured import GlobalStatistics, Wanted
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order

BLOCK_ROWS = 512  # of a tile: with 1024 columns a float32 tile is 2 MB and stays in the cache
BLOCK_COLUMNS = 1024  # a multiple of the rows
_MOST_BYTES = 2 << 30  # of a strip; more would gain little

MOST_KEPT = 4096  # values of a row; more would make even the narrowest strip large


class State:
    """Sums of exponentials and the largest values of some rows, padded to a multiple of `STEP`.

    Padding keeps no values. With a count of 0, no row does.
    """

    def __init__(self, rows: int, count: int):
        padded = rows + -rows % STEP
        self.sums = np.zeros(padded)
        self.largest = Largest(padded, count)
        self.largest.arrays[2][rows:] = np.inf

    def part(self, start: int, stop: int) -> tuple[NDArray[Any], ...]:
        """The arrays of `Largest` for rows start to stop."""
        return tuple(part[start:stop] for part in self.largest.arrays)


@dataclass(frozen=True, eq=False)
class BothWays:
    """The pass over all tiles.

    Attributes:
        x, y: the data.
        temperature, scale: tau, and `exponentials.scale_of` it.
        wanted: how many of the largest values.
        runtime: limits the memory.
        advance: called with the number of rows done, for each direction.
    """

    x: MeasuredRows
    y: MeasuredRows
    temperature: float
    scale: Scale
    wanted: Wanted
    runtime: Runtime
    advance: Callable[[int], None]

    def statistics(self) -> tuple[GlobalStatistics, GlobalStatistics]:
        """x to y, and y to x (the same object where y is x).

        Raises:
            ResourceError: the narrowest strip does not fit the memory.
        """
        n = self.x.num_rows
        width = self._strip_width()
        forth = GlobalStatistics.empty(n, self.wanted.hardest)
        back = forth if self.y is self.x else GlobalStatistics.empty(n, self.wanted.hardest)
        with full_float32():
            for left, right in spans(n, width):
                strip = _Strip(self, left, right)
                for start, stop, own in in_order(strip.meet, strip.starts()):
                    strip.add(start, stop, own, forth)
                strip.finish(back)
        return forth, back

    def fill(self, out: GlobalStatistics, at: slice, state: State, start: int) -> None:
        """Write the results of rows ``at``, which ``state`` holds from ``start`` on."""
        first, last = at.start, at.stop
        pairs = torch.linalg.vecdot(
            self.x.block(first, last).double(), self.y.block(first, last).double()
        )[: last - first]
        pairs /= self.temperature
        stop = start + last - first
        best, columns = state.largest.sorted(start, stop)
        logits = best.double() / self.temperature
        others = torch.from_numpy(state.sums[start:stop]).log()
        out.fill(at, pairs, others, logits, columns, self.wanted)

    def _strip_width(self) -> int:
        """Columns of a strip that fits into memory: all, or a multiple of a tile's."""
        n, threads = self.x.num_rows, torch.get_num_threads()
        room = 8 * key_room(self.wanted.kept) + 24
        in_flight = 3 * threads + 2  # blocks that run or wait for their turn
        results = (1 + (self.y is not self.x)) * n * (4 + self.wanted.hardest) * 8
        operands = 0 if self.x.held else 8 * self.x.dim * (BLOCK_ROWS + BLOCK_COLUMNS)
        fixed = results + in_flight * BLOCK_ROWS * (2 * room + 8 * self.wanted.kept)
        fixed += threads * (4 * BLOCK_ROWS * BLOCK_COLUMNS + operands)
        column_bytes = room + 8 * in_flight
        self.runtime.require_memory(
            fixed + column_bytes * min(n, BLOCK_COLUMNS),
            f"evaluate: {n} rows with {self.wanted.kept} hard negatives each",
            "evaluate a smaller batch size or less data",
        )
        fitting = min(self.runtime.memory_left() - fixed, _MOST_BYTES) // column_bytes
        return n if fitting >= n else max(BLOCK_COLUMNS, fitting // BLOCK_COLUMNS * BLOCK_COLUMNS)


class _Strip:
    """A range of columns and their statistics over all rows.

    The strip also completes some rows, which meet the columns beyond it too: the first strip all
    rows, or, where y is x, each strip its own rows.
    """

    def __init__(self, task: BothWays, left: int, right: int):
        self._task, self._left, self._right = task, left, right
        self._symmetric = task.y is task.x
        self._columns = State(right - left, task.wanted.kept)
        self._locks = [Lock() for _ in spans(right - left, BLOCK_COLUMNS)]

    def starts(self) -> range:
        """The first rows of the blocks that the strip needs."""
        stop = self._right if self._symmetric else self._task.x.num_rows
        return range(0, stop, BLOCK_ROWS)

    def meet(self, start: int) -> tuple[int, int, tuple[State, NDArray[np.float64]]]:
        """Compare the block of rows from ``start`` with the columns.

        Returns:
            The start and stop of the block, and its state with what the columns' sums gain.
        """
        task, n = self._task, self._task.x.num_rows
        stop = min(start + BLOCK_ROWS, n)
        own = task.x.block(start, stop)
        mine = State(stop - start, task.wanted.kept if self._owns(start) else 0)
        beyond = State(BLOCK_COLUMNS, 0)
        gains = np.zeros(len(self._columns.sums))
        buffer = torch.empty(len(own) * BLOCK_COLUMNS)
        for first, last in self._tiles(start, stop):
            keys = task.y.block(first, last)
            tile = buffer[: len(own) * len(keys)].view(len(own), len(keys))
            torch.mm(own, keys.T, out=tile)
            values = tile.numpy()[: stop - start], last - first, start, first, task.scale
            rows = task.wanted.kept, mine.sums, mine.largest.arrays
            left = first - self._left
            if self._feeds(first, stop):
                at = left, left + len(keys)
                with self._locks[left // BLOCK_COLUMNS]:
                    columns = task.wanted.kept, gains[slice(*at)], self._columns.part(*at)
                    take_in(*values, *rows, *columns)
            else:
                take_in(*values, *rows, 0, beyond.sums[: len(keys)], beyond.part(0, len(keys)))
        return start, stop, (mine, gains)

    def add(
        self,
        start: int,
        stop: int,
        own: tuple[State, NDArray[np.float64]],
        forth: GlobalStatistics,
    ) -> None:
        """Add the result of a `meet`, in the order of the blocks."""
        mine, gains = own
        self._columns.sums += gains
        if self._symmetric and self._owns(start):
            at = start - self._left
            self._columns.sums[at : at + stop - start] += mine.sums[: stop - start]
            keys, counts, _ = mine.part(0, stop - start)
            self._columns.largest.offer_keys(at, keys, counts)
        elif self._owns(start):
            self._task.fill(forth, slice(start, stop), mine, 0)
            self._task.advance(stop - start)

    def finish(self, back: GlobalStatistics) -> None:
        """Write the results of the columns."""
        for start, stop in spans(self._right - self._left, BLOCK_ROWS):
            at = slice(self._left + start, self._left + stop)
            self._task.fill(back, at, self._columns, start)
            self._task.advance(stop - start)

    def _owns(self, start: int) -> bool:
        """Whether this strip completes the rows from ``start`` on."""
        return self._left <= start < self._right if self._symmetric else self._left == 0

    def _feeds(self, first: int, stop: int) -> bool:
        """Whether a block up to ``stop`` updates the columns from ``first``; not its own rows."""
        return self._left <= first < self._right and (not self._symmetric or first >= stop)

    def _tiles(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The columns of the tiles, cut at multiples of `BLOCK_COLUMNS`."""
        n = self._task.x.num_rows
        if self._owns(start):
            end, cuts = n, [start, stop] if self._symmetric else [0]
        else:
            end, cuts = self._right, [self._left]
        cuts += range(cuts[-1] // BLOCK_COLUMNS * BLOCK_COLUMNS + BLOCK_COLUMNS, end, BLOCK_COLUMNS)
        cuts = [cut for cut in cuts if cut < end] + [end]
        return list(pairwise(cuts))
