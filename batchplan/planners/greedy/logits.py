"""The logits that `bcs` compares: stored if they fit into memory, else computed on use."""

from concurrent.futures import Executor
from itertools import product

import numpy as np
from numpy.typing import NDArray

from batchplan.planners.greedy.kernels import Bins, Floats, Ints, losses_of_rows
from batchplan.runtime import Runtime, format_bytes

_TILE = (128, 2048)  # members and candidates of a product


class Logits:
    """The logits of members with the rows that are left.

    Stored logits are in one array, with a block per round. The rows of a block are the members that
    joined in the previous round, its columns the rows that were left at its start. A table of ranks
    has the column of each row. So each pair of a member and a later row is multiplied once.
    """

    def __init__(self, bins: Bins, left: int, runtime: Runtime, spare: int) -> None:
        """Reserve memory for ``left`` rows that will join ``bins``, but leave ``spare`` bytes free,
        and report the cost to the observer."""
        self.bins, self.sides = bins, 1 + bins.pairs.paired
        sizes: list[int] = []
        updates = 0
        for size in range(bins.size, int(bins.capacities[0])):
            rows = int((bins.capacities > size).sum())
            sizes.append(self.sides * rows * left)
            updates += size * (rows * left - rows * (rows - 1) // 2)
            left -= rows
        need = 8 * sum(sizes)
        self.keeps = need + spare <= runtime.memory_left()
        how = "kept" if self.keeps else "do not fit, so they are computed for each choice"
        runtime.note("cost", f"{updates:.2g} updates of sums; {format_bytes(need)} of logits {how}")
        self.kept: Floats = np.empty(sum(sizes) if self.keeps else 0)
        self.starts = np.cumsum([0, *sizes])
        shape = (len(sizes) if self.keeps else 0, len(bins.pairs.own))
        self.ranks: NDArray[np.int32] = np.zeros(shape, np.int32)
        self.where = np.empty((2, *bins.members.shape), np.int64)
        self.block = np.empty(bins.members.shape[1], np.int64)  # of each member of a bin
        self.blocks = 0

    def add(self, left: Ints, pool: Executor) -> None:
        """Start a round: multiply the members that joined last with the rows ``left``."""
        if not self.keeps:
            return
        bins, number = self.bins, self.blocks
        indices, last = bins.open(), bins.size - 1
        rows = bins.members[indices, last]
        start = int(self.starts[number])
        block = self.kept[start : int(self.starts[number + 1])]
        block = block.reshape(self.sides, len(rows), len(left))

        def fill(tile: tuple[int, int]) -> None:
            down, along = (slice(at, at + step) for at, step in zip(tile, _TILE, strict=True))
            logits = bins.pairs.logits(rows[down], left[along])
            for side in range(self.sides):
                block[side, down, along] = logits[side].numpy()

        down, along = (
            range(0, n, step) for n, step in zip((len(rows), len(left)), _TILE, strict=True)
        )
        list(pool.map(fill, product(down, along)))
        place = start + len(left) * np.arange(len(rows))
        self.where[0, indices, last] = place
        self.where[1, indices, last] = place + (self.sides - 1) * len(rows) * len(left)
        self.block[last] = number
        self.ranks[number, left] = np.arange(len(left), dtype=np.int32)
        self.blocks += 1

    def score(self, j: int, rows: Ints, out: Floats) -> None:
        """Write the losses of bin ``j`` with each of ``rows`` to ``out``."""
        bins, k = self.bins, self.bins.size
        if self.keeps:
            kept, ranks, columns = self.kept, self.ranks, rows
            where, block = self.where[:, j, :k], self.block[:k]
        else:
            logits = bins.pairs.logits(bins.members[j, :k], rows)
            kept = np.concatenate([logits[side].numpy().ravel() for side in range(self.sides)])
            columns = np.arange(len(rows))
            ranks, block = columns.astype(np.int32)[None], np.zeros(k, np.int64)
            place = len(rows) * np.arange(k)
            where = np.stack([place, place + (self.sides - 1) * k * len(rows)])
        # The first side of a product is that of the member: its x, with the y of the candidate.
        losses_of_rows(
            kept, where[1], where[0], ranks, block, columns, bins.pairs.own[rows],
            bins.sums_x[j, :k], bins.sums_y[j, :k], bins.base[j], out,
        )  # fmt: skip
