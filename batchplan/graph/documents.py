"""Neighbours of rows. If rows have several documents, the nearest document of a row counts.

There is one search for the positives and one for each mined negative. The k best rows by their
nearest document are among the k best rows of some search, so the results only need to be united. k
mined negatives take 1 + k times the work of pairs, and 2 results in memory at a time. Each search
guards by its own document alone, so a pair may be listed that another document forbids.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.threads import in_blocks

_ROWS = 1024  # whose lists a thread unites at a time


class Neighbors(NamedTuple):
    """For each row i, the rows j != i with the largest x_i . y_j; with mined negatives, by their
    most similar document.

    Attributes:
        indices: int64 or int32 (N, k), distinct, most similar first, ties by the lower index.
        similarities: float32 (N, k), of those.

    If a guard leaves a row fewer than k neighbours, the last are -1, with similarity -inf.
    """

    indices: NDArray[Any]
    similarities: NDArray[np.float32]


def united_lists(by_document: Iterable[Neighbors]) -> Neighbors:
    """The k nearest rows of every row by their most similar document.

    Args:
        by_document: the neighbours by each document.

    Returns:
        Those by all documents; ties go to the lower row.
    """
    lists = iter(by_document)
    best = next(lists)
    for other in lists:
        out = Neighbors(*map(np.empty_like, best))
        work = partial(_unite, best, other, out)
        in_blocks(work, len(out.indices), _ROWS)
        best = out
    return best


def _unite(first: Neighbors, second: Neighbors, out: Neighbors, start: int, stop: int) -> None:
    """Merge two lists of each row, best first. A row in both lists counts where it is better."""
    names = np.hstack([first[0][start:stop], second[0][start:stop]])
    scores = np.hstack([first[1][start:stop], second[1][start:stop]])
    order = np.lexsort((names, -scores))
    names, scores = np.take_along_axis(names, order, 1), np.take_along_axis(scores, order, 1)
    by_name = np.argsort(names, axis=1, kind="stable")
    ordered = np.take_along_axis(names, by_name, 1)
    again = np.zeros(names.shape, np.bool_)
    np.put_along_axis(again, by_name[:, 1:], ordered[:, 1:] == ordered[:, :-1], 1)
    names[again], scores[again] = -1, -np.inf
    kept = np.argsort(again, axis=1, kind="stable")[:, : out[0].shape[1]]
    out[0][start:stop] = np.take_along_axis(names, kept, 1)
    out[1][start:stop] = np.take_along_axis(scores, kept, 1)
