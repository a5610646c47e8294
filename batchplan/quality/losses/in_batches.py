"""Losses inside the batches of a plan, in float64, over all pairs and over those of a guard.

Batches of equal size are multiplied together, and large ones tile by tile, so the work is N B d and
the memory is bounded for any batch size. One product serves both directions: its rows are x against
the y of the batch, its columns y against the x.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guard.rule import Guard
from batchplan.quality.losses.running import RunningLogSumExp
from batchplan.quality.measured import BatchStatistics
from batchplan.quality.pairs import Pairs
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.threads import in_order
from batchplan.typing import Float64Array, Int64Array

TILE = 1024  # entries of a batch multiplied at once
_PRODUCTS = 1 << 19  # similarities of batches multiplied together, unless one tile has more
_ELEMENTS = 1 << 19  # numbers of the rows gathered for them, which stay in the cache
_FEWER_ELEMENTS = 1 << 17  # measured: fastest where nothing but losses is wanted
_LARGEST_SHIFT = 300.0  # exp(-2 * 300) is well within float64
_REASONS = "similarity", "negative", "group", "duplicate", "any"


@dataclass(eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows of these pairs.
        by: their number by reason; ``any`` counts a pair of several reasons once.
    """

    affected: NDArray[np.bool_]
    by: dict[str, int]


class InBatches(NamedTuple):
    """The statistics of a plan in its batches, and the pairs that break the guard.

    ``forth`` is x to y and ``back`` y to x; they are the same object if the pairs are alike.
    """

    forth: BatchStatistics
    back: BatchStatistics
    breaks: Breaks


def batch_statistics(pairs: Pairs, rows: Int64Array, offsets: Int64Array) -> InBatches:
    """Measure each entry of a plan.

    Args:
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
    """
    x, y, guard, tau = pairs.x, pairs.y, pairs.guard, pairs.temperature
    ways = 1 if pairs.alike else 2
    out = [np.empty((4, len(rows))) for _ in range(ways)]
    affected, counts = np.zeros(x.num_rows, np.bool_), Counter[str]()

    def measure(entries: Int64Array) -> None:
        members = rows[entries]
        parts = [_Running(members.shape, x.device, guard is not None) for _ in range(ways)]
        for top in spans(members.shape[1], TILE):
            own = members[:, slice(*top)]
            queries = gather(x, own)
            for left in spans(members.shape[1], TILE):
                others = members[:, slice(*left)]
                tile = queries @ gather(y, others).mT
                forth, largest = None, tile
                if pairs.mined:
                    names = torch.from_numpy(others).to(x.device)
                    keys = partial(gather, indices=others)
                    forth, largest = pairs.mined.meet(queries, keys, names, tile, tau)
                hidden = None
                if guard is not None:
                    broken = _broken(pairs, guard, own, others, tile, largest)
                    counts.update(_counts(broken))
                    hidden = broken["any"]
                    affected[own[hidden.any(dim=-1).cpu().numpy()]] = True
                    if top == left:
                        hidden.diagonal(dim1=1, dim2=2).fill_(True)  # the positives
                logits = tile.div_(tau)
                places = slice(*top), slice(*left)
                each = (logits if forth is None else forth), logits
                for part, values, dim, at in zip(parts, each, (2, 1), places, strict=False):
                    part.add(values, dim, at, hidden)
                    if top == left:
                        part.positive[:, at] = logits.diagonal(dim1=1, dim2=2)
        for way, part in enumerate(parts):
            itself = part.positive
            if way == 0 and pairs.mined and guard is not None:
                flat = itself.flatten(), x, members.ravel(), tau
                itself = pairs.mined.with_own(*flat).view_as(itself)
            out[way][:, entries] = part.result(itself)

    groups = equal_batches(offsets, x.dim)
    # The broken pairs are added to in the order of the groups.
    threaded = guard is None and x.device.type == "cpu"
    for _ in in_order(measure, groups) if threaded else map(measure, groups):
        pass
    sides = [BatchStatistics(*values) for values in out]
    return InBatches(sides[0], sides[-1], Breaks(affected, _by_reason(counts)))


class MeanLosses(NamedTuple):
    """Mean losses, float64 (2,), x to y and y to x, over all pairs and over allowed ones, and the
    broken pairs by reason, as `Breaks.by`."""

    every: Float64Array
    allowed: Float64Array
    by: dict[str, int]


def mean_losses(pairs: Pairs, rows: Int64Array, offsets: Int64Array) -> MeanLosses:
    """The means of the losses of `batch_statistics`, which takes up to twice as long.

    One exponential of each similarity less the largest possible serves both directions.
    """
    x, y, guard, tau = pairs.x, pairs.y, pairs.guard, pairs.temperature
    shift = pairs.bound / tau
    fast = x.device.type == "cpu" and shift <= _LARGEST_SHIFT and not pairs.mined
    if not fast or np.diff(offsets).max() > TILE:
        forth, back, breaks = batch_statistics(pairs, rows, offsets)
        means = [
            [float((getattr(way, name) - way.positive).mean()) for way in (forth, back)]
            for name in ("log_sum", "allowed")
        ]
        every, allowed = np.array(means)
        return MeanLosses(every, allowed, breaks.by)

    def measure(entries: Int64Array) -> tuple[Float64Array, Counter[str]]:
        members = rows[entries]
        queries = gather(x, members)
        tile = torch.bmm(queries, (queries if y is x else gather(y, members)).mT)
        terms = (tile / tau).sub_(shift).exp_()
        positive, parts, counts = terms.diagonal(dim1=1, dim2=2), [terms], Counter[str]()
        if guard is not None:
            broken = _broken(pairs, guard, members, members, tile, tile)
            counts = _counts(broken)
            parts.append(terms.masked_fill(broken["any"], 0))
        losses = [
            [(part.sum(dim) / positive).log().numpy().sum() for dim in (2, 1)] for part in parts
        ]
        return np.array([losses[0], losses[-1]]), counts

    total, counts = np.zeros((2, 2)), Counter[str]()
    for losses, broken in in_order(measure, equal_batches(offsets, x.dim, _FEWER_ELEMENTS)):
        total += losses
        counts.update(broken)
    every, allowed = total / len(rows)
    return MeanLosses(every, allowed, _by_reason(counts))


class _Running:
    """The statistics of a group of equal batches in one direction, tile by tile."""

    def __init__(self, shape: tuple[int, ...], device: torch.device, guarded: bool):
        self.log_sum = RunningLogSumExp(shape, device)
        self.allowed = RunningLogSumExp(shape, device) if guarded else None
        self.positive = torch.empty(shape, dtype=torch.float64, device=device)

    def add(self, logits: torch.Tensor, dim: int, at: slice, hidden: torch.Tensor | None) -> None:
        """Add a tile, reduced along ``dim``; ``hidden`` pairs and positives are not allowed."""
        self.log_sum.add(logits, dim, at)
        if self.allowed is not None and hidden is not None:
            self.allowed.add(logits.masked_fill(hidden, -torch.inf), dim, at, consume=True)

    def result(self, itself: torch.Tensor) -> Float64Array:
        """(4, batches, entries), in the order of the fields of `BatchStatistics`."""
        log_sum = self.log_sum.result()
        allowed = log_sum
        if self.allowed is not None:
            allowed = torch.logaddexp(self.allowed.result(), itself)
        parts = self.positive, log_sum, self.log_sum.peak, allowed
        return torch.stack(parts).cpu().numpy()


def _broken(
    pairs: Pairs,
    guard: Guard,
    own: Int64Array,
    others: Int64Array,
    tile: torch.Tensor,
    largest: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Return which pairs of a tile break the guard, bool (batches, R, C), by reason, and ``any``.

    Args:
        own, others: int64 (batches, R) and (batches, C), the rows.
        tile: s_ij.
        largest: the largest similarity of x_i with any document of row j.
    """
    x, y = pairs.x, pairs.y
    rows, columns = (torch.from_numpy(names).to(x.device) for names in (own, others))
    on_diagonal = own is others or np.array_equal(own, others)
    back = tile.mT if on_diagonal else gather(y, own) @ gather(x, others).mT
    highest = torch.maximum(tile, back)
    if not guard.own:
        there, here = guard.x, guard.y
        highest = torch.maximum(
            gather(there, own) @ gather(here, others).mT,
            gather(here, own) @ gather(there, others).mT,
        )
    reasons = {"similarity": guard.excess(rows, columns, highest).ge(0)}
    if pairs.mined:
        of_own = partial(gather, indices=own)
        more = pairs.mined.meet(gather(x, others), of_own, rows, back.mT, pairs.temperature)[1].mT
        reached = guard.excess(rows, columns, largest.maximum(more)).ge(0)
        reached.logical_or_(pairs.mined.answers(rows, columns))
        reasons["negative"] = reached & ~reasons["similarity"]
    for reason, same in guard.same(rows, columns):
        reasons[reason] = reasons[reason] | same if reason in reasons else same
    reasons["any"] = reduce(torch.logical_or, reasons.values())
    for mask in reasons.values() if on_diagonal else ():
        mask.diagonal(dim1=1, dim2=2).fill_(False)  # the positives
    return reasons


def _counts(broken: dict[str, torch.Tensor]) -> Counter[str]:
    """Count the broken pairs of a tile by reason, each from both of its rows."""
    return Counter({reason: int(mask.count_nonzero()) for reason, mask in broken.items()})


def _by_reason(counts: Counter[str]) -> dict[str, int]:
    """Return how many pairs break the guard, from the `_counts` of all tiles."""
    return {reason: counts[reason] // 2 for reason in _REASONS}


def equal_batches(offsets: Int64Array, dim: int, elements: int = _ELEMENTS) -> Iterator[Int64Array]:
    """Yield the positions (batches, size) of the entries of a few batches of one size at a time.

    Their rows have at most ``elements`` numbers, unless those of one batch have more.
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
