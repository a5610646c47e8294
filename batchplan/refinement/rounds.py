"""A round: pairs of batches, none in two of them, improved in parallel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from batchplan.refinement.blocks import Search, improve
from batchplan.refinement.objective import Int64Array, Objective

_ENTRIES = 1 << 17  # of the similarity blocks that one thread works on at a time


def improve_round(
    rows: Int64Array,
    offsets: Int64Array,
    pairs: Int64Array,
    objective: Objective,
    masked: bool,
    search: Search,
    pool: ThreadPoolExecutor,
) -> tuple[float, NDArray[np.bool_]]:
    """Improve all pairs of batches (K, 2) in place; see `improve`.

    Returns:
        By how much the loss rose, and bool (K,), which pairs changed.
    """
    sizes = np.diff(offsets)
    gains, changed = np.zeros(len(pairs)), np.zeros(len(pairs), np.bool_)

    def work(chosen: Int64Array) -> None:
        first, second = pairs[chosen, 0], pairs[chosen, 1]
        own, other = int(sizes[first[0]]), int(sizes[second[0]])
        places = np.concatenate(
            [offsets[first, None] + np.arange(own), offsets[second, None] + np.arange(other)],
            axis=1,
        )
        gains[chosen], changed[chosen] = improve(objective, rows, places, own, masked, search)

    for _ in pool.map(work, alike(sizes[pairs])):
        pass
    return float(gains.sum()), changed


def alike(sizes: Int64Array) -> list[Int64Array]:
    """Numbers of the rows of ``sizes`` (K, 1 or 2) that are equal, a few at a time.

    How many depends on the sizes alone, so that a block is computed the same way whatever the
    number of threads.
    """
    groups = []
    for one in np.unique(sizes, axis=0):
        members = np.flatnonzero((sizes == one).all(axis=1))
        step = max(1, int(_ENTRIES // one.sum() ** 2))
        groups += [members[start : start + step] for start in range(0, len(members), step)]
    return groups
