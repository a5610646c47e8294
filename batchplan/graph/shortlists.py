"""The k best candidates of every row so far; candidates may come in any order.

The result does not depend on that order: the most similar stay, and ties go to the lower name.
"""

import numpy as np
from numpy.typing import NDArray

from batchplan.graph.screen import least_entry
from batchplan.kernels import insert, njit


class Shortlists:
    """Lists of k names and scores for N rows, each with its best entry first.

    Attributes:
        names: int64 (N, k), -1 for none yet.
        scores: float32 (N, k), of these, -inf for none yet.
        floors: float32 (N,): lower scores are ignored. A guess; `short` finds the rows where it was
            too high.
        bars: float32 (N,): lower scores can no longer enter the list of a row.
        limits: the bars as `least_entry` of tiles, int16 or int32.
    """

    def __init__(self, num_rows: int, k: int, middle: float, dropped: int) -> None:
        self.names = np.full((num_rows, k), -1)
        self.scores = np.full((num_rows, k), -np.inf, np.float32)
        self.floors = np.empty(num_rows, np.float32)
        self.bars = np.empty(num_rows, np.float32)
        self.limits = np.empty(num_rows, np.int16 if dropped else np.int32)
        self._tiles = middle, dropped

    def begin(self, rows: NDArray[np.int64], floors: NDArray[np.float32]) -> None:
        """Empty the lists of ``rows``, and set their floors."""
        _begin(rows, floors, *self._arrays(), *self._tiles)

    def offer(
        self,
        owners: NDArray[np.int64],
        others: NDArray[np.int64],
        scores: NDArray[np.float32],
    ) -> None:
        """Offer each of ``others`` to the list of its owner; no pair may be offered twice."""
        _offer(owners, others, scores, *self._arrays(), *self._tiles)

    def short(self) -> NDArray[np.int64]:
        """The rows with fewer than k entries, which may have more below their floors."""
        missing: NDArray[np.int64] = np.flatnonzero(
            (self.names[:, -1] < 0) & (self.floors > -np.inf)
        )
        return missing

    def _arrays(self) -> tuple[NDArray[np.generic], ...]:
        return self.names, self.scores, self.floors, self.bars, self.limits


@njit
def _begin(rows, guesses, names, scores, floors, bars, limits, middle, dropped):  # type: ignore[no-untyped-def]
    for at in range(rows.size):
        i = rows[at]
        names[i] = -1
        scores[i] = -np.inf
        floors[i] = bars[i] = guesses[at]
        limits[i] = least_entry(guesses[at], middle, dropped)


@njit
def _offer(  # type: ignore[no-untyped-def]
    owners, others, offered, names, scores, floors, bars, limits, middle, dropped
):
    for at in range(owners.size):
        i, name, score = owners[at], others[at], offered[at]
        if score < floors[i]:
            continue
        kept, own = scores[i], names[i]
        if score < kept[-1] or (score == kept[-1] and name > own[-1]):
            continue
        insert(score, name, kept, own)
        if kept[-1] > bars[i]:
            bars[i] = kept[-1]
            limits[i] = least_entry(kept[-1], middle, dropped)
