"""The edges of the similarity graph of GCBS: the largest similarities of two different rows.

Sachidananda et al., "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", section 5.1. The planner `gcbs` has a graph of its own, which this does not use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from batchplan.kernels import njit
from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import products, spans
from batchplan.quality.sample import Sample
from batchplan.runtime import full_float32
from batchplan.typing import Float32Array, Float64Array, Int64Array

MOST_EDGES = 64  # a row, on average: all of them are in memory
_TILE = 1024  # rows and columns
_SCAN = 64  # values compared together
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
    floor, count = np.float32(-np.inf), 0
    for start, stop in spans(len(names), _TILE):
        own, itself = pairs.x.some(names[start:stop]), names[start:stop]
        for first, last in spans(n, _TILE):
            tile = products(own, pairs.y.block(first, last)).cpu().numpy()
            code = start * n + first
            count = _keep(tile, itself - first, last - first, code, n, floor, values, places, count)
            if count > 2 * wanted:
                floor, count = _select(values, places, count, wanted), wanted
        advance(stop * n // len(names) - start * n // len(names))
    _select(values, places, count, wanted)
    return Edges(*np.divmod(np.sort(places[:wanted]), n))


def _select(values: Float32Array, places: Int64Array, count: int, wanted: int) -> np.float32:
    """Move the largest values, of equal ones those of lower places, to the front.

    Returns:
        The smallest of these values.
    """
    least: np.float32 = np.partition(values[:count], count - wanted)[count - wanted]
    above, ties = (np.flatnonzero(of) for of in (values[:count] > least, values[:count] == least))
    lowest = ties[np.argsort(places[ties])][: wanted - len(above)]
    kept = np.concatenate((above, lowest))
    values[:wanted], places[:wanted] = values[kept], places[kept]
    return least


@njit
def _keep(tile, itself, width, code, n, floor, values, places, count):  # type: ignore[no-untyped-def]
    """Append the values of a tile from ``floor`` on, and their codes row * n + column.

    Args:
        tile: float32 (rows, columns), perhaps with padding.
        itself: int64 (R,), the column of each row itself, which is left out.
        width: columns without padding.
        code: of the first value.
        values, places: what was kept before, ``count`` in number.
    """
    for row in range(itself.size):
        line = tile[row, :width]
        for start in range(0, width, _SCAN):
            part, hits = line[start : start + _SCAN], 0
            for value in part:  # vectorised, since it has no branch
                hits += value >= floor
            if hits:
                for column in range(part.size):
                    if part[column] >= floor and start + column != itself[row]:
                        values[count] = part[column]
                        places[count] = code + row * n + start + column
                        count += 1
    return count
