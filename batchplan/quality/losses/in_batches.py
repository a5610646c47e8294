"""Losses inside the batches of a plan, in float64, over all pairs and over those a guard allows.

Batches of equal size are multiplied together, and large ones some rows at a time, so the memory
holds one batch. One product serves both directions of a small batch: its rows are x against the y
of the batch, its columns y against the x.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.measured import BatchStatistics
from batchplan.quality.pairs import Pairs, meet
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.threads import in_order
from batchplan.typing import Float64Array, Int64Array

MOST = 1 << 20  # similarities of one batch compared at once
_PRODUCTS = 1 << 19  # similarities of batches multiplied together, unless one batch has more
_ELEMENTS = 1 << 19  # numbers of the rows gathered for them, which stay in the cache
_FEWER_ELEMENTS = 1 << 17  # measured: fastest where nothing but losses is wanted
_LARGEST_SHIFT = 300.0  # exp(-2 * 300) is well within float64
_REASONS = "similarity", "negative", "group", "duplicate", "known", "any"


@dataclass(frozen=True, eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows of these pairs.
        by: their number by reason; ``any`` counts a pair of several reasons once.
    """

    affected: NDArray[np.bool_]
    by: dict[str, int]


def batch_statistics(
    pairs: Pairs, rows: Int64Array, offsets: Int64Array
) -> tuple[BatchStatistics, BatchStatistics, Breaks]:
    """Measure each entry of a plan.

    Args:
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.

    Returns:
        The statistics x to y and y to x (the same object if the pairs are alike), and the pairs
        that break the guard.
    """
    device, guard, ways = pairs.x.device, pairs.guard, 1 if pairs.alike else 2
    out = [np.empty((6, len(rows))) for _ in range(ways)]
    affected, counts = np.zeros(pairs.num_rows, np.bool_), Counter[str]()

    def measure(entries: Int64Array) -> Counter[str]:
        size, found = entries.shape[1], Counter[str]()
        others, columns = _read(pairs, rows[entries])
        for start, stop in spans(size, max(1, MOST // size)):
            at = entries[:, start:stop]
            own, names = (others, columns) if at.shape == entries.shape else _read(pairs, rows[at])
            logits, *judged = meet(pairs, own, others, names, columns)
            broken = {}
            if guard is not None:
                broken = guard.reasons(names, columns, *judged)
                found.update({why: int(mask.count_nonzero()) for why, mask in broken.items()})
                affected[rows[at][broken["any"].any(dim=-1).cpu().numpy()]] = True
            positive = logits[1].diagonal(start, dim1=1, dim2=2)
            itself = torch.ones_like(logits[1][0], dtype=torch.bool).triu(start).tril(start)
            for way, values in zip(out, logits, strict=False):
                log_sum = allowed = values.logsumexp(-1)
                if broken:
                    allowed = values.masked_fill(broken["any"], -torch.inf).logsumexp(-1)
                least = values.masked_fill(itself, torch.inf).amin(-1)
                parts = positive, log_sum, values.amax(-1), values.sum(-1), least, allowed
                way[:, at] = torch.stack(parts).cpu().numpy()
        return found

    groups = equal_batches(offsets, pairs.x.dim)
    # The rows of a large batch are in memory once.
    threaded = device.type == "cpu" and np.diff(offsets).max() ** 2 <= MOST
    for found in in_order(measure, groups) if threaded else map(measure, groups):
        counts.update(found)
    sides = [BatchStatistics(*values) for values in out]
    by = {reason: counts[reason] // 2 for reason in _REASONS}  # each pair counts from both rows
    return sides[0], sides[-1], Breaks(affected, by)


def mean_losses(pairs: Pairs, rows: Int64Array, offsets: Int64Array) -> Float64Array:
    """The means of the losses of `batch_statistics`, which takes up to twice as long.

    One exponential of each similarity less the largest possible serves both directions.

    Returns:
        float64 (3, 2): the mean losses over all pairs and over allowed ones, and the mean
        probabilities of the positive, each x to y and y to x.
    """
    x, guard = pairs.x, pairs.guard
    shift = pairs.bound / pairs.temperature
    fast = x.device.type == "cpu" and shift <= _LARGEST_SHIFT and not pairs.mined
    if not fast or np.diff(offsets).max() ** 2 > MOST:
        forth, back, _ = batch_statistics(pairs, rows, offsets)
        means = [
            (way.losses().mean(), (way.allowed - way.positive).mean(), np.exp(-way.losses()).mean())
            for way in (forth, back)
        ]
        return np.array(means).T

    def measure(entries: Int64Array) -> Float64Array:
        read, names = _read(pairs, rows[entries])
        (logits, _), *judged = meet(pairs, read, read, names, names)
        terms = logits.sub_(shift).exp_()
        positive, parts = terms.diagonal(dim1=1, dim2=2), [terms]
        if guard is not None:
            parts.append(terms.masked_fill(guard.reasons(names, names, *judged)["any"], 0))
        inverse = [[part.sum(dim) / positive for dim in (2, 1)] for part in parts]
        losses = [[float(way.log().sum()) for way in ways] for ways in inverse]
        probability = [float(way.reciprocal().sum()) for way in inverse[0]]
        return np.array([losses[0], losses[-1], probability])

    total = np.zeros((3, 2))
    for found in in_order(measure, equal_batches(offsets, x.dim, _FEWER_ELEMENTS)):
        total += found
    return total / len(rows)


def _read(
    pairs: Pairs, members: Int64Array
) -> tuple[Callable[[MeasuredRows], torch.Tensor], torch.Tensor]:
    """Return what reads these rows of a side, once for each side, and their numbers."""
    return cache(partial(gather, indices=members)), torch.from_numpy(members).to(pairs.x.device)


def equal_batches(offsets: Int64Array, dim: int, elements: int = _ELEMENTS) -> Iterator[Int64Array]:
    """Yield the positions (batches, size) of the entries of a few batches of one size at a time.

    Their rows have at most ``elements`` numbers, unless a single batch has more.
    """
    sizes = np.diff(offsets)
    for size in np.unique(sizes):
        starts = offsets[:-1][sizes == size]
        step = max(1, min(_PRODUCTS // size**2, elements // (size * dim)))
        for first, last in spans(len(starts), int(step)):
            yield starts[first:last, None] + np.arange(size)


def pairs_within(offsets: Int64Array) -> int:
    """Count the unordered pairs of entries that share a batch."""
    sizes = np.diff(offsets)
    return int((sizes * (sizes - 1)).sum()) // 2


def gather(side: MeasuredRows, indices: Int64Array) -> torch.Tensor:
    """Return rows of a side, float64 (batches, rows, d)."""
    return side.gather(indices.ravel()).view(*indices.shape, side.dim)
