"""Shares: how many rows of each source go into each batch or mega-batch."""

from heapq import heappop, heappush

import numpy as np

from batchplan.kernels import njit
from batchplan.typing import Int64Array


def shares_of(kinds: Int64Array, sizes: Int64Array) -> Int64Array:
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
