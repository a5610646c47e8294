"""The losses of plans over the pairs that a guard allows, in float64."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.allowed_kernels import batch_losses
from batchplan.quality.allowed_pairs import AllowedPairs
from batchplan.quality.batches import (
    FEWER_ELEMENTS,
    LARGEST_SHIFT,
    TILE,
    equal_batches,
    gather,
)
from batchplan.quality.rows import spans
from batchplan.quality.running import RunningLogSumExp
from batchplan.threads import in_order

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows of these pairs.
        by: their number by reason; ``any`` counts a pair of several reasons once. Each pair is met
            from both its rows and counts twice.
    """

    affected: torch.Tensor
    by: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("any", "similarity", "group", "duplicate"), 0)
    )


def counted_losses(
    allowed: AllowedPairs, rows: Int64Array, offsets: Int64Array
) -> tuple[tuple[float, float], Breaks]:
    """Mean in-batch loss over the allowed pairs, x to y and y to x, and the pairs not allowed.

    Args:
        allowed: the allowed pairs.
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
    """
    x = allowed.x
    breaks = Breaks(torch.zeros(x.num_rows, dtype=torch.bool, device=x.device))
    losses = np.zeros(2)
    for entries in equal_batches(offsets, x.dim):
        for top in spans(entries.shape[1], TILE):
            losses += _within_batches(allowed, rows[entries], top, breaks)
    forth, back = losses / len(rows)
    return (float(forth), float(back)), breaks


def mean_losses(
    allowed: AllowedPairs, rows: Int64Array, offsets: Int64Array
) -> tuple[float, float]:
    """The losses of `counted_losses`, which takes ten times as long.

    One exponential of each similarity less the largest possible serves both directions.
    """
    x, y = allowed.x, allowed.y
    shift = allowed.bound / allowed.temperature
    if x.device.type != "cpu" or shift > LARGEST_SHIFT or np.diff(offsets).max() > TILE:
        return counted_losses(allowed, rows, offsets)[0]
    codes = np.array([codes.numpy() for _, codes in allowed.codes]).reshape(-1, x.num_rows)
    fixed = allowed.ceilings.numpy(), codes, shift, 1 / allowed.temperature

    def sums(entries: Int64Array) -> Float64Array:
        members = rows[entries]
        queries = gather(x, members)
        keys = queries if y is x else gather(y, members)
        products = torch.bmm(queries, keys.mT).numpy()
        return batch_losses(products, members, *fixed)  # type: ignore[no-any-return]

    total = np.zeros(2)
    for part in in_order(sums, equal_batches(offsets, x.dim, FEWER_ELEMENTS)):
        total += part
    forth, back = total / len(rows)
    return float(forth), float(back)


def _within_batches(
    allowed: AllowedPairs, members: Int64Array, top: tuple[int, int], breaks: Breaks
) -> Float64Array:
    """(2,) sums of losses of the entries ``top`` of equal batches, (batches, rows)."""
    x, y, own = allowed.x, allowed.y, members[:, slice(*top)]
    x_own, y_own = gather(x, own), gather(y, own)
    positive = torch.linalg.vecdot(x_own, y_own).div_(allowed.temperature)
    sums = [RunningLogSumExp(own.shape, x.device) for _ in range(2)]
    queries = torch.from_numpy(own).to(x.device)
    for left in spans(members.shape[1], TILE):
        others = members[:, slice(*left)]
        forth = x_own @ gather(y, others).mT
        back = forth.mT if top == left else y_own @ gather(x, others).mT
        keys = torch.from_numpy(others).to(x.device)
        masked = _broken(allowed, queries, keys, torch.maximum(forth, back), breaks)
        if top == left:
            masked.diagonal(dim1=1, dim2=2).fill_(True)  # the positive is added at the end
        for running, tile in zip(sums, (forth, back), strict=True):
            logits = tile.div(allowed.temperature).masked_fill_(masked, -torch.inf)
            running.add(logits, 2, slice(None), consume=True)
    losses = [torch.logaddexp(running.result(), positive) - positive for running in sums]
    return torch.stack(losses).sum(dim=(1, 2)).cpu().numpy()


def _broken(
    allowed: AllowedPairs,
    rows: torch.Tensor,
    columns: torch.Tensor,
    highest: torch.Tensor,
    breaks: Breaks,
) -> torch.Tensor:
    """Whether pairs of distinct rows break the guard, bool (..., R, C), counted in ``breaks``.

    The arguments are those of `AllowedPairs.excess`.
    """
    different = rows.unsqueeze(-1) != columns.unsqueeze(-2)
    reasons = {"similarity": allowed.excess(rows, columns, highest).ge(0).logical_and_(different)}
    for reason, same in allowed.same(rows, columns):
        same.logical_and_(different)
        reasons[reason] = reasons[reason] | same if reason in reasons else same
    broken = torch.stack(list(reasons.values())).any(dim=0)
    for reason, mask in (*reasons.items(), ("any", broken)):
        breaks.by[reason] += int(mask.sum())
    breaks.affected[rows[broken.any(dim=-1)]] = True
    return broken
