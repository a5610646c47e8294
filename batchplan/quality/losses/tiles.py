"""Rows against all rows on the CPU, in compiled kernels.

A tile of x_i . y_j and the one of x_j . y_i serve the rows i and the columns j in both directions,
so that all pairs of rows take one product X Y^T. Threads take a block of rows at a time, which
meets the tiles of the columns from its own rows on; earlier blocks have met the others. Where rows
are sampled, they are the columns, and all rows are read once.

The bytes of the result depend neither on the number of threads nor on the memory: blocks and tiles
have fixed sizes, each block sums its own exponentials, and these sums are added to the columns in
the order of the blocks. The largest values do not depend on the order. If all columns do not fit
into memory, columns are processed in strips.
"""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guard.kernels import hide
from batchplan.quality.losses.exponentials import STEP, Kept, Scale, take_in
from batchplan.quality.losses.largest import Largest, key_room
from batchplan.quality.measured import Found, GlobalStatistics, Needed
from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import MeasuredRows, products, spans
from batchplan.runtime import Runtime
from batchplan.threads import in_order
from batchplan.typing import Int64Array

BLOCK_ROWS = 512  # of a tile: with 1024 columns a float32 tile is 2 MB and stays in the cache
BLOCK_COLUMNS = 1024  # a multiple of the rows
MOST_KEPT = 4096  # values of a row; more would make even the narrowest strip large
_MOST_BYTES = 2 << 30  # of a strip; more would gain little


def tiled_statistics(
    pairs: Pairs,
    wanted: Needed,
    scale: Scale,
    runtime: Runtime,
    advance: Callable[[int], None],
    rows: Int64Array | None,
) -> tuple[GlobalStatistics, GlobalStatistics]:
    """See `all_rows.global_statistics`; ``scale`` is `exponentials.scale_of` the temperature.

    Raises:
        ResourceError: the narrowest strip does not fit the memory.
    """
    count = pairs.num_rows if rows is None else len(rows)
    out = [GlobalStatistics.empty(count, wanted) for _ in range(1 if pairs.alike else 2)]
    width = _strip_width(pairs, count, wanted, runtime)
    columns = _Columns(pairs, rows)
    for left, right in spans(count, width):
        strip = _Strip(columns, wanted, scale, left, right)
        for start, mine, gains in in_order(strip.meet, strip.starts()):
            strip.add(start, mine, gains)
            if strip.counts(start):
                advance(mine.rows)
        for start, stop in spans(right - left, BLOCK_ROWS):
            for way, side in enumerate(out):
                side.fill(slice(left + start, left + stop), strip.found(way, start, stop), wanted)
    return out[0], out[-1]


def _strip_width(pairs: Pairs, count: int, wanted: Needed, runtime: Runtime) -> int:
    """Return how many columns of a strip fit into memory: all, or a multiple of a tile's."""
    ways, threads = 1 if pairs.alike else 2, torch.get_num_threads()
    room = ways * (8 * key_room(wanted.kept) + 32)
    in_flight = 3 * threads + 2  # blocks that run or wait for their turn
    results = ways * count * (6 + wanted.hardest) * 8
    operands = 16 * pairs.x.dim * (BLOCK_ROWS + BLOCK_COLUMNS) * (pairs.x.held is None)
    fixed = results + in_flight * BLOCK_ROWS * (2 * room + ways * 8 * wanted.kept)
    fixed += threads * (20 * BLOCK_ROWS * BLOCK_COLUMNS + operands)
    column_bytes = room + in_flight * 8 * (2 * ways + 1)
    runtime.require_memory(
        fixed + column_bytes * min(count, BLOCK_COLUMNS),
        f"evaluate: {count} rows with {wanted.kept} hard negatives each",
        "evaluate a smaller batch size or less data",
    )
    fitting = min(runtime.memory_left() - fixed, _MOST_BYTES) // column_bytes
    return (
        count if fitting >= count else max(BLOCK_COLUMNS, fitting // BLOCK_COLUMNS * BLOCK_COLUMNS)
    )


class _Sums:
    """Sums of exponentials, (ways, columns), x to y and y to x, and int64 (columns,) pairs that
    break the guard."""

    def __init__(self, ways: int, columns: int):
        self.sums, self.allowed = np.zeros((2, ways, columns))
        self.broken = np.zeros(columns, np.int64)

    def gain(self, other: "_Sums", at: slice) -> None:
        """Add the sums of another object to the columns ``at``."""
        self.sums[:, at] += other.sums
        self.allowed[:, at] += other.allowed
        self.broken[at] += other.broken


class _State:
    """The sums and the largest values of some rows, padded to a multiple of `STEP`.

    Padding keeps no values. With a count of 0, no row does.
    """

    def __init__(self, ways: int, rows: int, count: int):
        self.count, self.rows = count, rows
        padded = rows + -rows % STEP
        self.sums = _Sums(ways, padded)
        self.largest = [Largest(padded, count) for _ in range(ways)]
        for one in self.largest:
            one.arrays[2][rows:] = np.inf

    def kept(self, way: int, at: slice, sums: _Sums) -> Kept:
        """Return the arrays of the rows ``at``, with these sums, for a tile to update."""
        arrays = tuple(part[at] for part in self.largest[way].arrays)
        return Kept(self.count, sums.sums[way, at], sums.allowed[way, at], arrays)


class _Columns:
    """The columns that all rows meet: all rows, or the sampled ``rows`` (S,)."""

    def __init__(self, pairs: Pairs, rows: Int64Array | None):
        self.pairs, self.every = pairs, rows is None
        n, guard = pairs.num_rows, pairs.guard
        self.names = np.arange(n) if rows is None else rows
        self.x, self.y = self._taken(pairs.x), self._taken(pairs.y)
        self.guard = guard
        if guard is None:
            return
        # What the guard compares; and ceilings and codes of all rows, and of the columns, padded.
        own = guard.own
        self.judge_x = self.x if own else self._taken(guard.x)
        self.judge_y = self.y if own else self._taken(guard.y)
        codes = [codes.numpy() for _, codes in guard.codes]
        self.codes = np.array(codes, np.int64).reshape(len(codes), n)
        self.ceilings = guard.ceilings_32.numpy()
        padding = 0, -len(self.names) % STEP
        self.column_codes = np.pad(self.codes[:, self.names], ((0, 0), padding))
        self.column_ceilings = np.pad(self.ceilings[self.names], padding)

    def _taken(self, side: MeasuredRows) -> MeasuredRows:
        return side if self.every else side.subset(self.names)


class _Strip:
    """A range of columns and their statistics over all rows.

    If the columns are all rows, the strip also completes its own rows, which meet the columns
    beyond it too.
    """

    def __init__(self, columns: _Columns, wanted: Needed, scale: Scale, left: int, right: int):
        self._columns, self._wanted, self._scale = columns, wanted, scale
        self._left, self._right = left, right
        self._ways = 1 if columns.pairs.alike else 2
        self._state = _State(self._ways, right - left, wanted.kept)
        self._locks = [Lock() for _ in spans(right - left, BLOCK_COLUMNS)]

    def starts(self) -> range:
        """The first rows of the blocks that the strip needs."""
        stop = self._right if self._columns.every else self._columns.pairs.num_rows
        return range(0, stop, BLOCK_ROWS)

    def counts(self, start: int) -> bool:
        """Whether the block from ``start`` counts as progress, each once in all strips."""
        return self._owns(start) if self._columns.every else self._left == 0

    def meet(self, start: int) -> tuple[int, _State, _Sums]:
        """Compare the block of rows from ``start`` with the columns: ``start``, the block's own
        statistics, and what to add to the columns."""
        columns, pairs = self._columns, self._columns.pairs
        stop = min(start + BLOCK_ROWS, pairs.num_rows)
        x, y = (side.block(start, stop) for side in (pairs.x, pairs.y))
        mine = _State(self._ways, stop - start, self._wanted.kept if self._owns(start) else 0)
        beyond = _State(self._ways, BLOCK_COLUMNS, 0)
        gains = _Sums(self._ways, len(self._state.sums.broken))
        for first, last in self._tiles(start, stop):
            x_keys, y_keys = columns.x.block(first, last), columns.y.block(first, last)
            forth = self._tile(products(x, y_keys), start, stop, first, last)
            back = forth
            if self._ways == 2:
                back = self._tile(products(y, x_keys), start, stop, first, last)
            feeds = self._feeds(first, stop)
            at = slice(first - self._left, first - self._left + forth.shape[1])
            state, sums = (self._state, gains) if feeds else (beyond, beyond.sums)
            at = at if feeds else slice(forth.shape[1])
            hidden = np.empty((0, 0), np.uint8)
            if columns.guard is not None:
                counts = mine.sums.broken[: stop - start], sums.broken[at]
                hidden = self._hide(forth, back, slice(start, stop), slice(first, last), *counts)
            with self._locks[at.start // BLOCK_COLUMNS] if feeds else nullcontext():
                for way, tile in enumerate((forth, back)[: self._ways]):
                    rows = mine.kept(way, slice(stop - start), mine.sums)
                    # s_ij is the similarity of y_j to x_i.
                    others = state.kept(self._ways - 1 - way, at, sums)
                    take_in(tile, hidden, start, first, self._scale, rows, others)
        return start, mine, gains

    def add(self, start: int, mine: _State, gains: _Sums) -> None:
        """Add the result of a `meet`, in the order of the blocks."""
        self._state.sums.gain(gains, slice(None))
        if self._owns(start):
            at = start - self._left
            self._state.sums.gain(mine.sums, slice(at, at + len(mine.sums.broken)))
            for own, largest in zip(mine.largest, self._state.largest, strict=True):
                keys, counts, _ = (part[: mine.rows] for part in own.arrays)
                largest.offer_keys(at, keys, counts)

    def found(self, way: int, start: int, stop: int) -> Found:
        """Return the results of the columns from ``start`` to ``stop`` of the strip."""
        first, last = self._left + start, self._left + stop
        tau = self._columns.pairs.temperature
        sides = (side.block(first, last).double() for side in (self._columns.x, self._columns.y))
        positive = torch.linalg.vecdot(*sides)[: stop - start] / tau
        best, columns = self._state.largest[way].sorted(start, stop)
        sums = self._state.sums
        others, allowed = (
            torch.from_numpy(part[way, start:stop]).log() for part in (sums.sums, sums.allowed)
        )
        allowed = others if self._columns.guard is None else allowed
        broken = torch.from_numpy(sums.broken[start:stop])
        return Found(positive, positive, others, allowed, broken, best.double() / tau, columns)

    def _owns(self, start: int) -> bool:
        """Whether this strip completes the rows from ``start`` on."""
        return self._columns.every and self._left <= start < self._right

    def _feeds(self, first: int, stop: int) -> bool:
        """Whether a block up to ``stop`` updates the columns from ``first``; not its own rows."""
        return not self._columns.every or (self._left <= first < self._right and first >= stop)

    def _tile(
        self, tile: torch.Tensor, start: int, stop: int, first: int, last: int
    ) -> NDArray[np.float32]:
        """Return a product without the padding of rows.

        It has -inf for padded columns and for pairs of a row with itself.
        """
        values: NDArray[Any] = tile.numpy()[: stop - start]
        values[:, last - first :] = -np.inf
        names = self._columns.names[first:last]
        (itself,) = np.nonzero((names >= start) & (names < stop))
        values[names[itself] - start, itself] = -np.inf
        return values

    def _hide(
        self,
        forth: NDArray[np.float32],
        back: NDArray[np.float32],
        rows: slice,
        columns: slice,
        broken: Int64Array,
        column_broken: Int64Array,
    ) -> NDArray[np.uint8]:
        """Return which pairs of a tile break the guard, uint8 (R, W); count by row and column."""
        of, guard = self._columns, self._columns.guard
        assert guard is not None
        judged: tuple[NDArray[Any], ...] = forth, back
        if not guard.own:
            own = (side.block(rows.start, rows.stop) for side in (guard.x, guard.y))
            keys = (side.block(columns.start, columns.stop) for side in (of.judge_y, of.judge_x))
            judged = tuple(
                products(one, other).numpy()[: len(forth)]
                for one, other in zip(own, keys, strict=True)
            )
        hidden = np.zeros(forth.shape, np.uint8)
        if guard.known is not None:
            names = of.names[columns]
            hidden[:, : len(names)] = guard.known.met(np.arange(rows.start, rows.stop), names)
        at = slice(columns.start, columns.start + forth.shape[1])
        hide(
            forth, *judged, of.ceilings[rows], of.column_ceilings[at],
            np.ascontiguousarray(of.codes[:, rows]), np.ascontiguousarray(of.column_codes[:, at]),
            hidden, broken, column_broken,
        )  # fmt: skip
        return hidden

    def _tiles(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the columns of the tiles, cut at multiples of `BLOCK_COLUMNS`."""
        cuts, end = [self._left], self._right
        if self._owns(start):
            cuts, end = [start, stop], len(self._columns.names)
        cuts += range(cuts[-1] // BLOCK_COLUMNS * BLOCK_COLUMNS + BLOCK_COLUMNS, end, BLOCK_COLUMNS)
        return list(pairwise([cut for cut in cuts if cut < end] + [end]))
