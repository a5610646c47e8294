"""The edges of the similarity graph of GCBS: the largest similarities of two different rows.

Sachidananda et al., "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", section 5.1. The planner `gcbs` has a graph of its own, which this does not use.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import products, spans
from batchplan.quality.sample import Sample
from batchplan.runtime import full_float32
from batchplan.typing import Float32Array, Float64Array, Int64Array

MOST_EDGES = 64  # a row, on average: all of them are in memory
_TILE = 1024  # rows and columns
_AT_ONCE = 1 << 20  # edges looked up together


@dataclass(frozen=True, eq=False)
class Edges:
    """The pairs (i, j), i != j, with the largest x_i . y_j.

    Attributes:
        places: int64 (E,), where i is in the sample; i itself if there is no sample.
        columns: int64 (E,), the rows j.
    """

    places: Int64Array
    columns: Int64Array

    def counts(self, members: csr_array, sample: Sample) -> Float64Array:
        """Count the edges within a batch, and all, of each row of the sample: float64 (2, S).

        ``members`` is the `recall.membership` of a plan.
        """
        own = members if sample.rows is None else members[sample.rows]
        together = [
            own[self.places[part]].multiply(members[self.columns[part]]).sum(axis=1) > 0
            for part in (slice(*span) for span in spans(len(self.places), _AT_ONCE))
        ]
        within = self.places[np.concatenate(together)]
        counted = [np.bincount(of, minlength=own.shape[0]) for of in (within, self.places)]
        return np.array(counted, np.float64)


@full_float32()
def largest_similarities(
    pairs: Pairs, batch_size: int, rows: Int64Array | None, advance: Callable[[int], None]
) -> Edges:
    """Find the S * min(k - 1, 64) largest similarities; ties go to the lower row, then column.

    Args:
        pairs: of N rows.
        batch_size: k. A row has k - 1 negatives in its batch.
        rows: int64 (S,), the rows i; None for all N.
        advance: called with the number of rows done, N in all.
    """
    n = pairs.num_rows
    names = np.arange(n) if rows is None else rows
    wanted = min(batch_size - 1, n - 1, MOST_EDGES) * len(names)
    room = 2 * wanted + _TILE**2
    values, places = np.empty(room, np.float32), np.empty(room, np.int64)
    floor, count = np.finfo(np.float32).min, 0
    for start, stop in spans(len(names), _TILE):
        itself = names[start:stop]
        own = pairs.x.some(itself)
        for first, last in spans(n, _TILE):
            tile = products(own, pairs.y.block(first, last)).cpu().numpy()
            tile = tile[: len(itself), : last - first]
            here = np.flatnonzero((itself >= first) & (itself < last))
            tile[here, itself[here] - first] = -np.inf
            i, j = np.nonzero(tile >= floor)
            more = slice(count, count := count + len(i))
            values[more], places[more] = tile[i, j], (start + i) * n + first + j
            if count > 2 * wanted:
                floor, count = _select(values, places, count, wanted), wanted
        advance(stop * n // len(names) - start * n // len(names))
    _select(values, places, count, wanted)
    return Edges(*np.divmod(np.sort(places[:wanted]), n))


def _select(values: Float32Array, places: Int64Array, count: int, wanted: int) -> np.float32:
    """Move the largest values to the front, of equal values the ones at lower places.

    Returns:
        The smallest of these values.
    """
    least: np.float32 = np.partition(values[:count], count - wanted)[count - wanted]
    above, ties = (np.flatnonzero(of) for of in (values[:count] > least, values[:count] == least))
    lowest = ties[np.argsort(places[ties])][: wanted - len(above)]
    kept = np.concatenate((above, lowest))
    values[:wanted], places[:wanted] = values[kept], places[kept]
    return least
