"""The logits that `bcs` compares: kept if they fit into memory, else computed when needed."""

import numpy as np
from numpy.typing import NDArray

from batchplan.planners.greedy.kernels import Bins, Floats, Ints, Spread, losses_of_rows
from batchplan.runtime import Runtime, format_bytes

_TILE = (128, 2048)  # members and candidates that are multiplied at once


class Logits:
    """The logits of members with the rows that are left.

    Kept ones lie in one array, a block for each round. The rows of a block are the members that
    came in the round before, its columns the rows left at its start; a table of ranks says which
    column is whose. So each member is multiplied once with the rows it can still meet.
    """

    def __init__(self, bins: Bins, left: int, runtime: Runtime, spare: int) -> None:
        """Plan for ``left`` rows that will join ``bins``, and tell the observer what it costs;
        ``spare`` bytes are for others."""
        self.bins, self.sides = bins, 1 + bins.pairs.paired
        sizes: list[int] = []
        updates, came = 0, bins.size  # came: rows that came to each bin in the round before
        for size in range(bins.size, int(bins.capacities[0])):
            rows = int((bins.capacities > size).sum())
            sizes.append(self.sides * rows * came * left)
            updates += size * (rows * left - rows * (rows - 1) // 2)
            came, left = 1, left - rows
        need = 8 * sum(sizes)
        self.keeps = need + spare <= runtime.memory_left()
        how = "kept" if self.keeps else "more than is left, so computed again for each choice"
        runtime.note("cost", f"{updates:.2g} updates of sums; {format_bytes(need)} of logits {how}")
        self.kept: Floats = np.empty(sum(sizes) if self.keeps else 0)
        self.starts = np.cumsum([0, *sizes])
        shape = (len(sizes) if self.keeps else 0, len(bins.pairs.own))
        self.ranks: NDArray[np.int32] = np.zeros(shape, np.int32)
        self.where = np.empty((2, *bins.members.shape), np.int64)
        self.block = np.empty(bins.members.shape[1], np.int64)  # of each member of a bin
        self.blocks = 0

    def add(self, left: Ints, spread: Spread) -> None:
        """At the start of a round: multiply the members that came last with the rows ``left``."""
        if not self.keeps:
            return
        bins, number = self.bins, self.blocks
        which, size = bins.open(), bins.size
        first = size - 1 if number else 0
        rows = bins.members[which, first:size].ravel()
        start = int(self.starts[number])
        block = self.kept[start : int(self.starts[number + 1])]
        block = block.reshape(self.sides, len(rows), len(left))

        def fill(tile: tuple[int, int]) -> None:
            down, along = (slice(at, at + step) for at, step in zip(tile, _TILE, strict=True))
            found = bins.pairs.logits(rows[down], left[along])
            for side in range(self.sides):
                block[side, down, along] = found[side].numpy()

        down, along = (
            range(0, n, step) for n, step in zip((len(rows), len(left)), _TILE, strict=True)
        )
        spread(fill, [(row, column) for row in down for column in along])
        place = start + len(left) * np.arange(len(rows)).reshape(len(which), size - first)
        self.where[0, which, first:size] = place
        self.where[1, which, first:size] = place + (self.sides - 1) * len(rows) * len(left)
        self.block[first:size] = number
        self.ranks[number, left] = np.arange(len(left), dtype=np.int32)
        self.blocks += 1

    def score(self, j: int, some: Ints, out: Floats) -> None:
        """Write the losses of the unions of bin ``j`` and each of the rows ``some`` to ``out``."""
        bins, k = self.bins, self.bins.size
        if self.keeps:
            kept, ranks, columns = self.kept, self.ranks, some
            where, block = self.where[:, j, :k], self.block[:k]
        else:
            found = bins.pairs.logits(bins.members[j, :k], some)
            kept = np.concatenate([found[side].numpy().ravel() for side in range(self.sides)])
            columns = np.arange(len(some))
            ranks, block = columns.astype(np.int32)[None], np.zeros(k, np.int64)
            place = len(some) * np.arange(k)
            where = np.stack([place, place + (self.sides - 1) * k * len(some)])
        # The first side of a product is that of the member: its x, with the y of the candidate.
        losses_of_rows(
            kept, where[1], where[0], ranks, block, columns, bins.pairs.own[some],
            bins.sums_x[j, :k], bins.sums_y[j, :k], bins.base[j], out,
        )  # fmt: skip
