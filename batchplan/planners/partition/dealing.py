"""Which rows go into which mega-batch, and in which order the finished batches come."""

from heapq import heappop, heappush

import numpy as np

from batchplan.kernels import njit
from batchplan.plans.steps import take_batches
from batchplan.typing import Int64Array


def shares_of(kinds: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return how many rows of each kind go into each part, int64 (K, P).

    Each number differs from the proportional share by less than two rows. The rows are set out in
    a line in which each kind is always less than a row away from its share, and the line is cut
    into the parts. Row j of the n_k of a kind may be at the places from j n / n_k to
    (j + 1) n / n_k. A place goes to the row whose last possible place comes first: Baruah et al.,
    "Proportionate Progress: A Notion of Fairness in Resource Allocation", Algorithmica 15, 1996.

    Args:
        kinds: int64 (n,), of 0 to K - 1.
        sizes: int64 (P,), of the parts; their sum is n.
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
    """The kind at each place. Rows come in the order of the first place that they may have."""
    line = np.empty(kinds.size, np.int64)
    waiting = [(ends[0], kinds[0])]  # numba learns the type of the list from this entry
    waiting.pop()
    following = 0
    for place in range(kinds.size):
        while following < kinds.size and begins[following] <= place:
            heappush(waiting, (ends[following], kinds[following]))
            following += 1
        line[place] = heappop(waiting)[1]
    return line


def deal(
    rows: Int64Array,
    sizes: Int64Array,
    count: int,
    generator: np.random.Generator,
    kinds: Int64Array | None = None,
) -> list[tuple[Int64Array, Int64Array]]:
    """Deal rows to mega-batches at random.

    Args:
        rows: int64 (n,), in rising order.
        sizes: int64 (P,), of all batches, falling; their sum is n. The first mega-batch gets the
            first of them.
        count: number of mega-batches. Each gets at least two batches, since a single batch would be
            random; so there may be fewer.
        generator: draws the mega-batch of each row.
        kinds: int64 (N,), the kind of each row of the data, from 0. Each mega-batch gets its share
            of each kind. None: rows have no kinds.

    Returns:
        For each mega-batch, its rows in rising order, and the sizes of its batches.
    """
    count = min(count, len(sizes) // 2)
    if count <= 1:
        return [(rows, sizes)]
    parts = np.array_split(sizes, count)
    totals = np.array([part.sum() for part in parts])
    room, order = totals[None], generator.permutation(len(rows))
    if kinds is not None:
        own = kinds[rows]
        room = shares_of(own, totals)
        order = order[np.argsort(own[order], kind="stable")]
    home = np.empty(len(rows), np.int64)
    home[order] = np.repeat(np.tile(np.arange(count), len(room)), room.ravel())
    dealt = np.split(rows[np.argsort(home, kind="stable")], np.cumsum(totals)[:-1])
    return list(zip(dealt, parts, strict=True))


def interleaved(counts: list[int]) -> Int64Array:
    """The order of the batches of several sources in which each source is spread evenly: int64
    (batches,), numbers of batches that are counted source after source."""
    along = np.concatenate([(np.arange(count) + 0.5) / max(count, 1) for count in counts])
    sources = np.repeat(np.arange(len(counts)), counts)
    order: Int64Array = np.lexsort((sources, along))
    return order


def take_turns(
    rows: Int64Array, sizes: list[Int64Array], shuffle: np.random.Generator | None
) -> tuple[Int64Array, Int64Array]:
    """Let the batches of several sources take turns.

    Args:
        rows: int64 (entries,), of all batches, source after source.
        sizes: int64 (batches,) of each source: rows of its batches, falling.
        shuffle: puts the full batches of each source in random order; None keeps their order.

    Returns:
        The rows, batch after batch, and the batch offsets.
    """
    numbers, first = [], 0
    for own in sizes:
        order = np.arange(first, first + len(own))
        if shuffle is not None:
            full = np.count_nonzero(own == max(map(np.max, sizes)))
            order[:full] = shuffle.permutation(order[:full])
        numbers.append(order)
        first += len(own)
    order = np.concatenate(numbers)[interleaved([len(own) for own in sizes])]
    return take_batches(rows, np.append(0, np.cumsum(np.concatenate(sizes))), order)
