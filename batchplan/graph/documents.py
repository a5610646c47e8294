"""Neighbours of rows with several documents: the nearest document of a row counts.

There is one search for the positives and one for each mined negative. The k best rows by their
nearest document are among the k best rows of some search, so the results only need to be united. k
mined negatives take 1 + k times the work of pairs, and 2 results in memory at a time. Each search
guards by its own document alone, so a pair may be listed that another document forbids.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from batchplan.threads import in_blocks

Lists = tuple[NDArray[np.int64], NDArray[np.float32]]

_ROWS = 1024  # whose lists a thread unites at a time


def united_lists(by_document: Iterable[Lists]) -> Lists:
    """The k nearest rows of every row by their most similar document.

    Args:
        by_document: for each document, int64 and float32 (N, k): the nearest rows, best first, and
            their similarities; -1 and -inf at the end of shorter lists.

    Returns:
        The lists by all documents; ties go to the lower row.
    """
    lists = iter(by_document)
    best = next(lists)
    for other in lists:
        out = np.empty_like(best[0]), np.empty_like(best[1])
        work = partial(_unite, best, other, out)
        in_blocks(work, len(out[0]), _ROWS)
        best = out
    return best


def _unite(first: Lists, second: Lists, out: Lists, start: int, stop: int) -> None:
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
