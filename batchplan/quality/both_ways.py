"""One product X Y^T on the CPU for both directions: rows of a tile are x to y, columns y to x.

Blocks of rows run on all threads, each with one of its own, and a block meets the tiles of all
columns. Where y is x, it meets those from its own rows on, and what the columns of a tile tell of
later rows is what they would see in the tiles left out.

The bytes of the result depend neither on the number of threads nor on the memory: blocks and tiles
have fixed sizes, each block adds up its exponentials by itself, and its sums are added to those of
all columns in the order of the blocks. What is kept of the largest values does not depend on an
order. If the columns' largest values do not fit the memory, columns are taken a strip at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.exponentials import STEP, Scale, take_in
from batchplan.quality.largest import Largest, key_room
from batchplan.quality.measured import GlobalStatistics, Wanted
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order

_ROWS = 512  # of a tile: with 1024 columns a float32 tile is 2 MB and stays in the cache
_COLUMNS = 1024  # a multiple of the rows
_MOST_BYTES = 2 << 30  # of a strip; more would be held for little

MOST_KEPT = 4096  # values of a row; more would make even the narrowest strip large


class _State:
    """Sums of exponentials and the largest values of some rows, a multiple of `STEP` of them.

    Rows beyond ``rows`` are never put. With a count of 0, nothing is kept.
    """

    def __init__(self, rows: int, count: int):
        padded = rows + -rows % STEP
        self.sums = np.zeros(padded)
        self.largest = Largest(padded, count)
        self.largest.arrays[2][rows:] = np.inf

    def part(self, start: int, stop: int) -> tuple[NDArray[Any], ...]:
        """The arrays of `Largest` of rows start to stop."""
        return tuple(part[start:stop] for part in self.largest.arrays)


@dataclass(frozen=True, eq=False)
class BothWays:
    """The pass over all tiles.

    Attributes:
        x, y: the data.
        temperature, scale: tau, and `exponentials.scale_of` it.
        wanted: which of the largest values.
        runtime: the memory that this may take.
        advance: told of rows done, of each direction.
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
        forth = GlobalStatistics.empty(n, self.wanted.found)
        back = forth if self.y is self.x else GlobalStatistics.empty(n, self.wanted.found)
        with full_float32():
            for left, right in spans(n, width):
                strip = _Strip(self, left, right)
                for start, stop, own in in_order(strip.meet, strip.starts()):
                    strip.add(start, stop, own, forth)
                strip.finish(back)
        return forth, back

    def fill(self, out: GlobalStatistics, at: slice, state: _State, start: int) -> None:
        """Write the results of some rows, which ``state`` has from ``start`` on."""
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
        """Columns of a strip that fits the memory, a multiple of a tile's unless all fit."""
        n, threads = self.x.num_rows, torch.get_num_threads()
        room = 8 * key_room(self.wanted.kept) + 24
        flying = 3 * threads + 2  # blocks that run, or wait for their turn
        results = (1 + (self.y is not self.x)) * n * (4 + self.wanted.found) * 8
        operands = 0 if self.x.held else 8 * self.x.dim * (_ROWS + _COLUMNS)
        fixed = results + flying * _ROWS * (2 * room + 8 * self.wanted.kept)
        fixed += threads * (4 * _ROWS * _COLUMNS + operands)
        a_column = room + 8 * flying
        self.runtime.require_memory(
            fixed + a_column * min(n, _COLUMNS),
            f"evaluate: {n} rows with {self.wanted.kept} hard negatives each",
            "evaluate a smaller batch size or less data",
        )
        fitting = min(self.runtime.memory_left() - fixed, _MOST_BYTES) // a_column
        return n if fitting >= n else max(_COLUMNS, fitting // _COLUMNS * _COLUMNS)


class _Strip:
    """Some columns, and what all rows show them.

    The rows that are done with this strip meet the columns beyond it too: all rows with the first
    strip, and where y is x, the rows of the strip.
    """

    def __init__(self, task: BothWays, left: int, right: int):
        self._task, self._left, self._right = task, left, right
        self._symmetric = task.y is task.x
        self._columns = _State(right - left, task.wanted.kept)
        self._locks = [Lock() for _ in spans(right - left, _COLUMNS)]

    def starts(self) -> range:
        """The first rows of the blocks that have anything to do with the strip."""
        stop = self._right if self._symmetric else self._task.x.num_rows
        return range(0, stop, _ROWS)

    def meet(self, start: int) -> tuple[int, int, tuple[_State, NDArray[np.float64]]]:
        """Rows start and on against the columns: what they see, and what the columns' sums gain."""
        task, n = self._task, self._task.x.num_rows
        stop = min(start + _ROWS, n)
        own = task.x.block(start, stop)
        mine = _State(stop - start, task.wanted.kept if self._owns(start) else 0)
        beyond = _State(_COLUMNS, 0)
        gains = np.zeros(len(self._columns.sums))
        buffer = torch.empty(len(own) * _COLUMNS)
        for first, last in self._tiles(start, stop):
            keys = task.y.block(first, last)
            tile = buffer[: len(own) * len(keys)].view(len(own), len(keys))
            torch.mm(own, keys.T, out=tile)
            values = tile.numpy()[: stop - start], last - first, start, first, task.scale
            rows = task.wanted.kept, mine.sums, mine.largest.arrays
            left = first - self._left
            if self._tells(first, stop):
                at = left, left + len(keys)
                with self._locks[left // _COLUMNS]:
                    columns = task.wanted.kept, gains[slice(*at)], self._columns.part(*at)
                    take_in(*values, *rows, *columns)
            else:
                take_in(*values, *rows, 0, beyond.sums[: len(keys)], beyond.part(0, len(keys)))
        return start, stop, (mine, gains)

    def add(
        self,
        start: int,
        stop: int,
        own: tuple[_State, NDArray[np.float64]],
        forth: GlobalStatistics,
    ) -> None:
        """Take in what `meet` returned, block by block in order."""
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
        for start, stop in spans(self._right - self._left, _ROWS):
            at = slice(self._left + start, self._left + stop)
            self._task.fill(back, at, self._columns, start)
            self._task.advance(stop - start)

    def _owns(self, start: int) -> bool:
        """Whether the rows from ``start`` on are done with this strip."""
        return self._left <= start < self._right if self._symmetric else self._left == 0

    def _tells(self, first: int, stop: int) -> bool:
        """Whether rows up to ``stop`` tell the columns from ``first`` on what these do not see."""
        return self._left <= first < self._right and (not self._symmetric or first >= stop)

    def _tiles(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The columns of the tiles, cut at multiples of `_COLUMNS`."""
        n = self._task.x.num_rows
        if self._owns(start):
            end, cuts = n, [start, stop] if self._symmetric else [0]
        else:
            end, cuts = self._right, [self._left]
        cuts += range(cuts[-1] // _COLUMNS * _COLUMNS + _COLUMNS, end, _COLUMNS)
        cuts = [cut for cut in cuts if cut < end] + [end]
        return list(pairwise(cuts))
