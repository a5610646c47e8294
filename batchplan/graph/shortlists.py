"""The k best candidates of every row so far; candidates may come in any order.

The result does not depend on that order: the most similar stay, and ties go to the lower name.
"""

import numpy as np
from numpy.typing import NDArray

from batchplan.graph.screen import least_entry
from batchplan.kernels import njit


class Shortlists:
    """Lists of k names and scores for N rows, each a heap with its worst entry first.

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
            (self.names[:, 0] < 0) & (self.floors > -np.inf)
        )
        return missing

    def sort(self, start: int, stop: int) -> None:
        """Sort the lists of some rows, best first; nothing can be offered to them afterwards."""
        _sort(self.names[start:stop], self.scores[start:stop])

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
        if score < kept[0] or (score == kept[0] and name > own[0]):
            continue
        kept[0], own[0] = score, name
        sink(kept, own, kept.size)
        if kept[0] > bars[i]:
            bars[i] = kept[0]
            limits[i] = least_entry(kept[0], middle, dropped)


@njit
def sink(scores, names, size):  # type: ignore[no-untyped-def]
    """Move the first of a heap of ``size`` entries to its place; the worst is first."""
    score, name = scores[0], names[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and _worse(scores[other], names[other], scores[child], names[child]):
            child = other
        if not _worse(scores[child], names[child], score, name):
            break
        scores[place], names[place] = scores[child], names[child]
        place = child
    scores[place], names[place] = score, name


@njit
def _worse(score, name, than_score, than_name):  # type: ignore[no-untyped-def]
    return score < than_score or (score == than_score and name > than_name)


@njit
def _sort(names, scores):  # type: ignore[no-untyped-def]
    for r in range(len(names)):
        kept, own = scores[r], names[r]
        for size in range(kept.size - 1, 0, -1):
            kept[0], kept[size] = kept[size], kept[0]
            own[0], own[size] = own[size], own[0]
            sink(kept, own, size)
