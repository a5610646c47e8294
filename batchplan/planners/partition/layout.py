"""Which rows and how many go into which batch, before any similarity is looked at.

A batch is made of *units*: the sets of rows that a partition makes. It is one unit, unless batches
are made of several clusters. Some of its rows may be drawn at random; these are in no unit. The
others are dealt at random to *mega-batches*, each of which is partitioned into units of its own.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MegaBatch:
    """Rows that are partitioned together.

    Attributes:
        rows: int64 (n,), in rising order.
        quotas: int64 (K, U), how many rows of each kind go into each unit.
    """

    rows: Int64Array
    quotas: Int64Array

    @property
    def units(self) -> Int64Array:
        """int64 (U,), how many rows go into each unit, falling."""
        sizes: Int64Array = self.quotas.sum(axis=0)
        return sizes


@dataclass(frozen=True, eq=False)
class Layout:
    """The batches of one source, or of all rows.

    Attributes:
        mega_batches: the rows that are partitioned.
        batch_of_unit: int64 (U,), the batch of each unit of all mega-batches.
        drawn: int64 (m,), the rows that are drawn at random, batch after batch.
        batch_of_drawn: int64 (m,), the batch of each.
    """

    mega_batches: tuple[MegaBatch, ...]
    batch_of_unit: Int64Array
    drawn: Int64Array
    batch_of_drawn: Int64Array

    @property
    def units(self) -> Int64Array:
        """int64 (U,), how many rows go into each unit, falling."""
        return np.concatenate([one.units for one in self.mega_batches])

    @property
    def num_rows(self) -> int:
        """How many rows are partitioned."""
        return sum(len(one.rows) for one in self.mega_batches)

    def compose(self, unit_rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """All rows and the batch of each, batch after batch, given the rows of the units one after
        the other."""
        rows = np.concatenate([unit_rows, self.drawn])
        batches = np.concatenate([np.repeat(self.batch_of_unit, self.units), self.batch_of_drawn])
        order = np.argsort(batches, kind="stable")
        return rows[order], batches[order]


def make_layout(
    rows: Int64Array,
    sizes: Int64Array,
    generator: np.random.Generator,
    *,
    cluster_size: int | None = None,
    random_fraction: float = 0.0,
    mega_batches: int = 1,
    kinds: Int64Array | None = None,
) -> Layout:
    """Lay out the batches of some rows.

    Args:
        rows: int64 (n,), in rising order.
        sizes: int64 (P,), of the batches, falling; they add up to n.
        generator: draws the random rows, which clusters share a batch, and the mega-batches.
        cluster_size: rows of a cluster, where batches are made of several.
        random_fraction: share of each batch that is drawn at random.
        mega_batches: how many to deal the rows to; each has two units at least, since with one it
            would be random.
        kinds: int64 (N,), the kind of every row there is, from 0 on, where each unit is to have its
            share of each kind; no rows are drawn at random then.
    """
    count = len(sizes)
    from_random = np.rint(sizes * random_fraction).astype(np.int64)
    mixed = generator.permutation(rows) if from_random.any() else rows
    drawn, kept = np.split(mixed, [from_random.sum()])
    left = sizes - from_random
    if cluster_size is None:
        batches = np.flatnonzero(left)
        units = left[batches]
    else:
        # Whole clusters are dealt to the batches at random; what a batch holds more is one cluster.
        whole, rest = np.divmod(left, cluster_size)
        dealt = generator.permutation(np.repeat(np.arange(count), whole))
        batches = np.concatenate([dealt, np.flatnonzero(rest)])
        units = np.concatenate([np.full(len(dealt), cluster_size), rest[rest > 0]])
        order = np.argsort(-units, kind="stable")
        batches, units = batches[order], units[order]
    kept = np.sort(kept)
    quotas = units[None, :] if kinds is None else mixed_evenly(kinds[kept], units)
    parts = _deal(kept, kinds, quotas, min(mega_batches, len(units) // 2), generator)
    return Layout(parts, batches, drawn, np.repeat(np.arange(count), from_random))


def _deal(
    rows: Int64Array,
    kinds: Int64Array | None,
    quotas: Int64Array,
    count: int,
    generator: np.random.Generator,
) -> tuple[MegaBatch, ...]:
    """Deal the rows of each kind to mega-batches at random, each as many as its units take."""
    if count <= 1:
        return (MegaBatch(rows, quotas),)
    parts = np.array_split(quotas, count, axis=1)
    members: list[list[Int64Array]] = [[] for _ in parts]
    for kind in range(len(quotas)):
        own = rows if kinds is None else rows[kinds[rows] == kind]
        ends = np.cumsum([part[kind].sum() for part in parts])
        dealt = np.split(generator.permutation(own), ends[:-1])
        for held, more in zip(members, dealt, strict=True):
            held.append(more)
    return tuple(
        MegaBatch(np.sort(np.concatenate(held)), part)
        for held, part in zip(members, parts, strict=True)
    )


def mixed_evenly(kinds: Int64Array, sizes: Int64Array) -> Int64Array:
    """How many rows of each kind go into each part: int64 (K, P), so that every part holds its
    share of each kind, to less than two rows.

    The rows are set out in a line in which each kind is always less than a row away from its share,
    and the line is cut into the parts. Row j of the n_k of a kind has the places from j n / n_k to
    (j + 1) n / n_k, and places go to the row whose last one is the nearest: Baruah et al.,
    "Proportionate Progress: A Notion of Fairness in Resource Allocation", Algorithmica 15, 1996.

    Args:
        kinds: int64 (n,), of 0 to K - 1.
        sizes: int64 (P,), of the parts; they add up to n.
    """
    totals = np.bincount(kinds)
    which = np.repeat(np.arange(len(totals)), totals)
    number = np.arange(len(kinds)) - (np.cumsum(totals) - totals)[which]
    begins = number * len(kinds) // totals[which]
    ends = -(-(number + 1) * len(kinds) // totals[which])
    order = np.lexsort((which, ends, begins))
    line = _earliest_end_first(begins[order], ends[order], which[order])
    out = np.zeros((len(totals), len(sizes)), np.int64)
    np.add.at(out, (line, np.repeat(np.arange(len(sizes)), sizes)), 1)
    return out


@njit
def _earliest_end_first(begins, ends, kinds):  # type: ignore[no-untyped-def]
    """The kind at each place, given rows in the order in which they may begin."""
    line = np.empty(kinds.size, np.int64)
    waiting = [(ends[0], kinds[0])]
    waiting.pop()
    following = 0
    for place in range(kinds.size):
        while following < kinds.size and begins[following] <= place:
            heappush(waiting, (ends[following], kinds[following]))
            following += 1
        line[place] = heappop(waiting)[1]
    return line


def interleaved(counts: list[int]) -> Int64Array:
    """The order of the batches of several sources, those of each spread evenly: int64 (batches,),
    numbers of batches counted source after source."""
    along = np.concatenate([(np.arange(one) + 0.5) / max(one, 1) for one in counts])
    sources = np.repeat(np.arange(len(counts)), counts)
    order: Int64Array = np.lexsort((sources, along))
    return order
