"""The losses of rows over all their pairs that a guard allows.

On the CPU, a tile of x_i . y_j and the one of x_j . y_i serve the rows i and the columns j, so that
all rows cost two products of half the matrix. Threads take blocks of rows; each block sums its own
exponentials, and what columns gain is added in the order of the blocks, so that the bytes of the
result do not depend on the number of threads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guard.kernels import add_exponentials, forbid
from batchplan.quality.guard.pairs import AllowedPairs
from batchplan.quality.losses.exponentials import STEP, Scale, scale_of
from batchplan.quality.losses.running import RunningLogSumExp
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import full_float32
from batchplan.threads import in_order

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_BLOCK_ROWS = 512
_BLOCK_COLUMNS = 1024  # a multiple of the rows
_DEVICE_ROWS = 1024  # of the tiles of a device, and of a temperature without a `Scale`
_DEVICE_COLUMNS = 4096
_EPS = float(np.finfo(np.float32).eps)


def all_losses(
    allowed: AllowedPairs, rows: Int64Array | None, advance: Callable[[int], None]
) -> tuple[Float64Array, Float64Array]:
    """The loss of each of the ``rows``, int64 (S,), None for all, over all its allowed pairs, the
    mean of both directions, and how many of its pairs are not allowed; both float64 (S,).

    Similarities are float32. Doubtful pairs are computed again in float64, so that a pair breaks
    the guard here exactly if it does in a batch. ``advance`` counts the rows done.
    """
    scale = scale_of(allowed.temperature, allowed.bound)
    if allowed.x.device.type == "cpu" and scale is not None and not allowed.mined:
        return _AllRows(allowed, scale, rows).losses(advance)
    rows = np.arange(allowed.x.num_rows) if rows is None else rows
    losses, broken = np.empty((2, len(rows)))
    for start, stop in spans(len(rows), _DEVICE_ROWS):
        losses[start:stop], broken[start:stop] = _against_all(allowed, rows[start:stop])
        advance(stop - start)
    return losses, broken


@dataclass(eq=False)
class _Gains:
    """What a block of rows adds to the sums of exponentials, (2, ...), x to y and y to x, and to
    the pairs that are not allowed: of its own rows, and of the columns from its first row on."""

    sums: Float64Array
    broken: Int64Array
    column_sums: Float64Array
    column_broken: Int64Array


class _AllRows:
    """The pass on the CPU.

    With all rows, a block meets the columns from its own rows on, which gain from it too.
    """

    def __init__(self, allowed: AllowedPairs, scale: Scale, rows: Int64Array | None):
        n = allowed.x.num_rows
        self._allowed, self._scale = allowed, scale
        self._both_ways = rows is None
        self._rows = np.arange(n) if rows is None else rows
        # Padded like the blocks of rows.
        padding = -n % STEP
        self._names = np.pad(np.arange(n), (0, padding), constant_values=-1)
        ceilings = allowed.ceilings.numpy().astype(np.float32)
        self._ceilings = np.pad(ceilings, (0, padding), constant_values=np.inf)
        codes = [np.pad(codes.numpy(), (0, padding)) for _, codes in allowed.codes]
        self._codes = np.array(codes, np.int64).reshape(len(codes), n + padding)

    def losses(self, advance: Callable[[int], None]) -> tuple[Float64Array, Float64Array]:
        """As `all_losses`."""
        count, allowed = len(self._rows), self._allowed
        sums, broken = np.zeros((2, count)), np.zeros(count, np.int64)
        positive = np.empty(count)
        starts = range(0, count, _BLOCK_ROWS)
        with full_float32():
            for start, gains in zip(starts, in_order(self._meet, starts), strict=True):
                stop = min(start + _BLOCK_ROWS, count)
                sums[:, start:stop] += gains.sums
                broken[start:stop] += gains.broken
                if self._both_ways:
                    sums[:, start:] += gains.column_sums[:, : count - start]
                    broken[start:] += gains.column_broken[: count - start]
                own = self._rows[start:stop]
                pairs = torch.linalg.vecdot(allowed.x.gather(own), allowed.y.gather(own))
                positive[start:stop] = pairs / allowed.temperature
                advance(stop - start)
        losses = np.logaddexp(np.log(sums), positive) - positive
        return losses.mean(axis=0), broken.astype(np.float64)

    def _meet(self, start: int) -> _Gains:
        """Compare the block of rows from ``start`` with its columns."""
        x, y, own = self._allowed.x, self._allowed.y, self._rows[start : start + _BLOCK_ROWS]
        count, n = len(own), x.num_rows
        x_own, y_own = x.some(own), y.some(own)
        judge_x, judge_y, _ = self._allowed.judge
        judge_own = () if self._allowed.own_judge else (judge_x.some(own), judge_y.some(own))
        origin = start if self._both_ways else 0
        room = len(self._names) - origin
        gains = _Gains(
            np.zeros((2, count)), np.zeros(count, np.int64),
            np.zeros((2, room)), np.zeros(room, np.int64),
        )  # fmt: skip
        fixed = self._ceilings[own], self._codes.take(own, axis=1)
        doubtful = np.empty(count * _BLOCK_COLUMNS, np.int64)
        for first, last in self._tiles(start, start + count, n):
            x_keys, y_keys = x.block(first, last), y.block(first, last)
            width = len(x_keys)
            forth = x_own @ y_keys.T
            back = forth if y is x else y_own @ x_keys.T
            tile = judged = forth[:count].numpy(), back[:count].numpy()
            operands = x_own, y_own, x_keys, y_keys
            if judge_own:
                operands = *judge_own, judge_x.block(first, last), judge_y.block(first, last)
                there, here = _products(*operands)
                judged = there[:count].numpy(), here[:count].numpy()
            slack = self._slack(*operands)[:count].numpy()
            columns = slice(first, first + width)
            codes = np.ascontiguousarray(self._codes[:, columns])
            sums, broken = np.zeros((2, width)), np.zeros(width, np.int64)
            doubts = forbid(
                *tile, *judged, own, self._names[columns], fixed[0], self._ceilings[columns], slack,
                fixed[1], codes, gains.broken, broken, doubtful,
            )  # fmt: skip
            self._decide(own, first, tile, doubtful[:doubts], gains.broken, broken)
            add_exponentials(*tile, self._scale, gains.sums, sums)
            if self._both_ways and first > start:
                at = slice(first - origin, first - origin + width)
                gains.column_sums[:, at] += sums
                gains.column_broken[at] += broken
        return gains

    def _decide(
        self,
        own: Int64Array,
        first: int,
        tile: tuple[NDArray[np.float32], NDArray[np.float32]],
        doubtful: Int64Array,
        broken: Int64Array,
        column_broken: Int64Array,
    ) -> None:
        """Turn the doubtful pairs of a tile that break the guard to -inf, and count them."""
        r, c = np.divmod(doubtful, tile[0].shape[1])
        pairs = torch.from_numpy(own[r]), torch.from_numpy(c + first)
        reached = self._allowed.reach(*pairs).numpy()
        r, c = r[reached], c[reached]
        for part in tile:
            part[r, c] = -np.inf
        broken += np.bincount(r, minlength=len(broken))
        column_broken += np.bincount(c, minlength=len(column_broken))

    def _slack(self, *operands: torch.Tensor) -> torch.Tensor:
        """`_rounding`, and that of the ceilings and of the difference to them."""
        return _rounding(*operands).add_(4 * _EPS * self._allowed.judge[2])

    def _tiles(self, start: int, stop: int, n: int) -> list[tuple[int, int]]:
        """The columns that the rows meet: their own, and those after them, cut at multiples;
        without both ways all."""
        if not self._both_ways:
            return spans(n, _BLOCK_COLUMNS)
        after = (stop // _BLOCK_COLUMNS + 1) * _BLOCK_COLUMNS
        cuts = [start, stop, *range(after, n, _BLOCK_COLUMNS), n]
        return [(first, last) for first, last in pairwise(cuts) if first < last]


def _against_all(allowed: AllowedPairs, own: Int64Array) -> tuple[Float64Array, Float64Array]:
    """`all_losses` of a few rows, on any device and at any temperature.

    The padding of blocks (see `MeasuredRows.block`) is cut off tiles.
    """
    x, y, count = allowed.x, allowed.y, len(own)
    mined, tau = allowed.mined, allowed.temperature
    x_own, y_own = x.some(own), y.some(own)
    judge_x, judge_y, _ = allowed.judge
    judge_own = () if allowed.own_judge else (judge_x.some(own), judge_y.some(own))
    positive = torch.linalg.vecdot(x_own.double(), y_own.double())[:count] / allowed.temperature
    sums = [RunningLogSumExp((count,), x.device) for _ in range(2)]
    rows = torch.from_numpy(own).to(x.device)
    broken = torch.zeros(count, dtype=torch.float64, device=x.device)
    with full_float32():
        for first, last in spans(x.num_rows, _DEVICE_COLUMNS):
            x_keys, y_keys = x.block(first, last), y.block(first, last)
            columns = torch.arange(first, last, device=x.device)
            forth = (x_own @ y_keys.T)[:count, : last - first]
            back = forth if x is y else (y_own @ x_keys.T)[:count, : last - first]
            highest, operands = forth.maximum(back), (x_own, y_own, x_keys, y_keys)
            logits = [forth / tau, back / tau]
            slack = _rounding(*operands)[:count]
            if mined:
                there = partial(MeasuredRows.block, start=first, stop=last)
                logits[0], largest = mined.meet(x_own, there, columns, forth, tau)
                highest = largest.maximum(back)
                here = partial(MeasuredRows.some, indices=own)
                highest = highest.maximum(mined.meet(x_keys, here, rows, back.mT, tau)[1].mT)
                for side in mined.sides:
                    operands = x_own, side.some(own), x_keys, side.block(first, last)
                    slack = slack.maximum(_rounding(*operands)[:count])
            if judge_own:
                operands = *judge_own, judge_x.block(first, last), judge_y.block(first, last)
                highest = torch.maximum(*_products(*operands))[:count, : last - first]
                slack = _rounding(*operands)[:count]
            masked = _broken(allowed, rows, columns, highest, slack)
            broken += masked.sum(dim=1)
            masked |= rows[:, None] == columns
            for running, tile in zip(sums, logits, strict=True):
                running.add(tile.masked_fill_(masked, -torch.inf), 1, slice(None), consume=True)
    with_own = mined.with_own(positive, x, own, tau), positive
    losses = [
        torch.logaddexp(running.result(), itself) - positive
        for running, itself in zip(sums, with_own, strict=True)
    ]
    return torch.stack(losses).mean(dim=0).cpu().numpy(), broken.cpu().numpy()


def _broken(
    allowed: AllowedPairs,
    rows: torch.Tensor,
    columns: torch.Tensor,
    highest: torch.Tensor,
    slack: torch.Tensor,
) -> torch.Tensor:
    """Whether pairs of distinct rows break the guard, bool (R, C).

    Args:
        rows, columns: int64 (R,) and (C,).
        highest: float32 (R, C), max(s_ij, s_ji), with errors of at most ``slack`` (R,).
    """
    excess = allowed.excess(rows, columns, highest)
    broken = excess >= 0
    answers = [allowed.mined.answers(rows, columns)] if allowed.mined else []
    for same in (*answers, *(one for _, one in allowed.same(rows, columns))):
        broken |= same
        excess.masked_fill_(same, torch.inf)  # beyond doubt
    different = rows[:, None] != columns
    broken &= different
    r, c = torch.nonzero((excess.abs() <= slack[:, None]) & different, as_tuple=True)
    broken[r, c] = allowed.reach(rows[r], columns[c])
    return broken


def _products(
    x_own: torch.Tensor, y_own: torch.Tensor, x_keys: torch.Tensor, y_keys: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """s_ij and s_ji, float32 (R, C)."""
    return x_own @ y_keys.T, y_own @ x_keys.T


def _rounding(
    x_own: torch.Tensor, y_own: torch.Tensor, x_keys: torch.Tensor, y_keys: torch.Tensor
) -> torch.Tensor:
    """float32 (R,): a bound on the rounding errors of each row's similarities with all keys.

    Twice the bound for a dot product summed in any order, to cover the rounding of the bound.
    """
    bounds = [
        torch.linalg.vector_norm(own, dim=1).mul_(torch.linalg.vector_norm(keys, dim=1).max())
        for own, keys in ((x_own, y_keys), (y_own, x_keys))
    ]
    longest: torch.Tensor = bounds[0].maximum(bounds[1])
    return longest.mul_(x_own.shape[1] * _EPS)
