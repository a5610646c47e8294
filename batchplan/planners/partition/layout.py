"""Which rows of a mega-batch go into which batch, before any similarity is looked at.

A batch is made of *units*: the sets of rows that a partition makes. It is one unit, unless batches
are made of several clusters. Some of its rows may be drawn at random; these are in no unit.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """The batches of n rows, numbered from 0.

    Attributes:
        rows: int64 (k,), the rows that are partitioned, in rising order.
        quotas: int64 (K, U), how many of them of each kind go into each unit.
        batch_of_unit: int64 (U,), the batch of each unit.
        drawn: int64 (n - k,), the rows that are drawn at random, batch after batch.
        batch_of_drawn: int64 (n - k,), the batch of each.
    """

    rows: Int64Array
    quotas: Int64Array
    batch_of_unit: Int64Array
    drawn: Int64Array
    batch_of_drawn: Int64Array

    @property
    def units(self) -> Int64Array:
        """int64 (U,), how many rows go into each unit, falling."""
        sizes: Int64Array = self.quotas.sum(axis=0)
        return sizes

    def compose(self, unit_rows: Int64Array) -> Int64Array:
        """int64 (n,): all rows, batch after batch, where those of the units come one after the
        other."""
        rows = np.concatenate([unit_rows, self.drawn])
        batches = np.concatenate([np.repeat(self.batch_of_unit, self.units), self.batch_of_drawn])
        return rows[np.argsort(batches, kind="stable")]


def make_layout(
    sizes: Int64Array,
    generator: np.random.Generator,
    *,
    cluster_size: int | None = None,
    random_fraction: float = 0.0,
    kinds: Int64Array | None = None,
) -> Layout:
    """Lay out the batches of n rows.

    Args:
        sizes: int64 (P,), of the batches, falling; n in all.
        generator: draws the random rows, and which clusters share a batch.
        cluster_size: rows of a cluster, where batches are made of several.
        random_fraction: share of each batch that is drawn at random.
        kinds: int64 (n,), the kind of each row, from 0 on, where each unit is to have its share of
            each kind; no rows are drawn at random then.
    """
    count, rows = len(sizes), np.arange(sizes.sum())
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
    return Layout(kept, quotas, batches, drawn, np.repeat(np.arange(count), from_random))


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
