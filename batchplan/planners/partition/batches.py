"""From the batches of mega-batches to those of a plan."""

import numpy as np

from batchplan.plans.steps import take_batches
from batchplan.typing import Int64Array


def interleaved(counts: list[int]) -> Int64Array:
    """The order of the batches of several sources, those of each spread evenly: int64 (batches,),
    numbers of batches counted source after source."""
    along = np.concatenate([(np.arange(count) + 0.5) / max(count, 1) for count in counts])
    sources = np.repeat(np.arange(len(counts)), counts)
    order: Int64Array = np.lexsort((sources, along))
    return order


def in_random_order(
    rows: Int64Array, sizes: list[Int64Array], generator: np.random.Generator
) -> Int64Array:
    """The rows of the blocks of several sources, to be cut into batches: full blocks in random
    order, then shorter ones.

    Args:
        rows: int64 (entries,), those of all blocks, source after source.
        sizes: int64 (blocks,) of each source: rows of its blocks.
        generator: draws the order.
    """
    of_all = np.concatenate(sizes)
    order = generator.permutation(len(of_all))
    order = order[np.argsort(of_all[order] < of_all.max(), kind="stable")]
    return take_batches(rows, np.append(0, np.cumsum(of_all)), order)[0]


def take_turns(
    rows: Int64Array, sizes: list[Int64Array], shuffle: np.random.Generator | None
) -> tuple[Int64Array, Int64Array]:
    """Let the batches of several sources take turns.

    Args:
        rows: int64 (entries,), those of all batches, source after source.
        sizes: int64 (batches,) of each source: rows of its batches, falling.
        shuffle: puts the full batches of each source in random order, if there is one.

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
