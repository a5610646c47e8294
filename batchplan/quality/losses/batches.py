"""The similarities inside the batches of a plan, in float64.

Batches of equal size are multiplied together, and large ones tile by tile, so the work is N B d and
the memory is bounded for any batch size. One product serves both directions: its rows are x against
the y of the batch, its columns y against the x.
"""

from collections.abc import Iterator
from functools import partial
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.losses.distribution import Histogram, Percentiles
from batchplan.quality.losses.running import RunningLogSumExp
from batchplan.quality.measured import BatchStatistics
from batchplan.quality.mined import Mined
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.threads import in_order

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

TILE = 1024  # entries of a batch multiplied at once
_PRODUCTS = 1 << 19  # similarities of batches multiplied together, unless one tile has more
_ELEMENTS = 1 << 19  # numbers of the rows gathered for them, which stay in the cache
FEWER_ELEMENTS = 1 << 17  # measured: fastest where nothing but losses is wanted
LARGEST_SHIFT = 300.0  # exp(-2 * 300) is well within float64


class Detail:
    """Statistics of the similarities in all batches of a plan.

    Attributes:
        total: sum of s_ij over all ordered pairs of a batch, the positives included.
        smallest: the smallest s_ij with i != j, inf without any.
        histogram: of the s_ij with i != j.
        percentiles: of the same, or None.
    """

    def __init__(self, histogram: Histogram, percentiles: Percentiles | None = None):
        self.total = 0.0
        self.smallest = inf
        self.histogram = histogram
        self.percentiles = percentiles

    def add(self, tile: torch.Tensor, on_diagonal: bool) -> None:
        """Add similarities (batches, rows, columns); a tile on the diagonal is square."""
        self.total += float(tile.sum(dim=2).sum(dim=1).cpu().numpy().sum())
        negatives = _off_diagonal(tile) if on_diagonal else tile
        if negatives.numel():
            self.smallest = min(self.smallest, float(negatives.min()))
            self.histogram.add(negatives)
            if self.percentiles is not None:
                self.percentiles.add(negatives)


def batch_statistics(
    x: MeasuredRows,
    y: MeasuredRows,
    mined: Mined,
    rows: Int64Array,
    offsets: Int64Array,
    temperature: float,
    detail: Detail | None = None,
) -> tuple[BatchStatistics, BatchStatistics]:
    """x to y, and y to x (the same object where y is x, without mined negatives).

    Args:
        x, y: the data.
        mined: mined negatives, which count from x to y.
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
        temperature: tau.
        detail: collects the similarities, unless None.
    """
    both = (0, 1) if y is not x or mined else (0,)
    out = [np.empty((4, len(rows))) for _ in both]

    def measure(entries: Int64Array) -> None:
        count, size = entries.shape
        parts = [_Running(count, size, x.device) for _ in both]
        for top in spans(size, TILE):
            queries = gather(x, rows[entries[:, slice(*top)]])
            for left in spans(size, TILE):
                keys = gather(y, rows[entries[:, slice(*left)]])
                tile = queries @ keys.mT
                forth, largest = None, tile
                if mined:
                    names = rows[entries[:, slice(*left)]]
                    forth, largest = mined.meet(
                        queries, partial(gather, indices=names),
                        torch.from_numpy(names).to(x.device), tile, temperature,
                    )  # fmt: skip
                if detail is not None:
                    detail.add(largest, top == left)
                logits = tile.div_(temperature)
                ways = (logits if forth is None else forth), logits
                places = slice(*top), slice(*left)
                for part, own, dim, at in zip(parts, ways, (2, 1), places, strict=False):
                    part.add(own, dim, at)
                    if top == left:
                        part.positive[:, at] = logits.diagonal(dim1=1, dim2=2)
        for part, values in zip(parts, out, strict=True):
            values[:, entries] = part.result()

    groups = equal_batches(offsets, x.dim)
    # `Detail` needs the order of the groups, so that its sums do not depend on threads.
    threaded = detail is None and x.device.type == "cpu"
    for _ in in_order(measure, groups) if threaded else map(measure, groups):
        pass
    forth, back = (BatchStatistics(*out[side]) for side in (both[0], both[-1]))
    return forth, (back if len(both) == 2 else forth)


def mean_losses(
    x: MeasuredRows,
    y: MeasuredRows,
    mined: Mined,
    rows: Int64Array,
    offsets: Int64Array,
    temperature: float,
    bound: float,
) -> tuple[float, float]:
    """The means of the losses of `batch_statistics`, which takes twice as long.

    One exponential of each similarity less ``bound``, the largest possible, serves both directions.
    """
    shift = bound / temperature
    sizes = np.diff(offsets)
    if mined or x.device.type != "cpu" or shift > LARGEST_SHIFT or sizes.max() > TILE:
        forth, back = batch_statistics(x, y, mined, rows, offsets, temperature)
        return float(forth.losses().mean()), float(back.losses().mean())

    def sums(entries: Int64Array) -> Float64Array:
        logits = products(x, y, rows[entries]).div_(temperature)
        positive = logits.diagonal(dim1=1, dim2=2).sum() - shift * entries.size
        terms = logits.sub_(shift).exp_()
        return np.array([float(terms.sum(dim).log_().sum() - positive) for dim in (2, 1)])

    total = np.zeros(2)
    for part in in_order(sums, equal_batches(offsets, x.dim, FEWER_ELEMENTS)):
        total += part
    forth, back = total / len(rows)
    return float(forth), float(back)


class _Running:
    """The statistics of a group of equal batches in one direction, tile by tile."""

    def __init__(self, count: int, size: int, device: torch.device):
        self.log_sum = RunningLogSumExp((count, size), device)
        self.positive = torch.empty((count, size), dtype=torch.float64, device=device)
        self.floor = torch.full_like(self.positive, torch.inf)

    def add(self, logits: torch.Tensor, dim: int, at: slice) -> None:
        self.log_sum.add(logits, dim, at)
        self.floor[:, at] = torch.minimum(self.floor[:, at], logits.amin(dim))

    def result(self) -> Float64Array:
        """(4, batches, entries), in the order of the fields of `BatchStatistics`."""
        parts = self.positive, self.log_sum.result(), self.log_sum.peak, self.floor
        return torch.stack(parts).cpu().numpy()


def equal_batches(offsets: Int64Array, dim: int, elements: int = _ELEMENTS) -> Iterator[Int64Array]:
    """Positions (batches, size) of the entries of a few batches of one size at a time; their rows
    have at most ``elements`` numbers, unless those of one batch have more."""
    sizes = np.diff(offsets)
    for size in np.unique(sizes):
        starts = offsets[:-1][sizes == size]
        step = max(1, min(_PRODUCTS // size**2, elements // (size * dim)))
        for first, last in spans(len(starts), int(step)):
            yield starts[first:last, None] + np.arange(size)


def pairs_within(offsets: Int64Array) -> int:
    """How many unordered pairs of entries share a batch."""
    sizes = np.diff(offsets)
    return int((sizes * (sizes - 1)).sum()) // 2


def products(x: MeasuredRows, y: MeasuredRows, members: Int64Array) -> torch.Tensor:
    """float64 (batches, B, B): s_ij of the rows of equal batches, int64 (batches, B)."""
    queries = gather(x, members)
    keys = queries if y is x else gather(y, members)
    return torch.bmm(queries, keys.mT)


def gather(side: MeasuredRows, indices: Int64Array) -> torch.Tensor:
    """float64 (batches, rows, d)."""
    return side.gather(indices.ravel()).view(*indices.shape, side.dim)


def _off_diagonal(tile: torch.Tensor) -> torch.Tensor:
    """A view of (batches, n, n) without the diagonals, which hold every (n + 1)-th element."""
    count, n, _ = tile.shape
    return tile.reshape(count, n * n)[:, 1:].view(count, n - 1, n + 1)[:, :, :-1]
