"""The losses of plans over the pairs that a guard allows, in float64."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guard.kernels import REASONS, batch_losses
from batchplan.quality.guard.pairs import AllowedPairs
from batchplan.quality.losses.batches import (
    FEWER_ELEMENTS,
    LARGEST_SHIFT,
    TILE,
    equal_batches,
    gather,
    products,
)
from batchplan.quality.losses.running import RunningLogSumExp
from batchplan.quality.rows import spans
from batchplan.threads import in_order

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]


_KERNEL_REASONS = "similarity", "group", "duplicate", "any"
_REASONS = "similarity", "negative", "group", "duplicate", "any"


@dataclass(eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows of these pairs.
        by: their number by reason; ``any`` counts a pair of several reasons once.
    """

    affected: NDArray[np.bool_]
    by: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_REASONS, 0))


def mean_losses(
    allowed: AllowedPairs, rows: Int64Array, offsets: Int64Array
) -> tuple[tuple[float, float], Breaks]:
    """Mean in-batch loss over the allowed pairs, x to y and y to x, and the pairs not allowed.

    On the CPU, one exponential of each similarity less the largest possible serves both directions.

    Args:
        allowed: the allowed pairs.
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
    """
    x, tau = allowed.x, allowed.temperature
    breaks = Breaks(np.zeros(x.num_rows, np.bool_))
    total = np.zeros(2)
    shift = allowed.bound / tau
    fast = x.device.type == "cpu" and shift <= LARGEST_SHIFT and not allowed.mined
    if not fast or np.diff(offsets).max() > TILE:
        for entries in equal_batches(offsets, x.dim):
            for top in spans(entries.shape[1], TILE):
                total += _within_batches(allowed, rows[entries], top, breaks)
        breaks.by = {reason: count // 2 for reason, count in breaks.by.items()}
    else:
        codes = np.array([codes.numpy() for _, codes in allowed.codes], np.int64)
        kinds = np.array([_KERNEL_REASONS.index(reason) for reason, _ in allowed.codes], np.int64)
        fixed = allowed.ceilings.numpy(), codes.reshape(-1, x.num_rows), kinds, shift, 1 / tau

        def measure(entries: Int64Array) -> tuple[Float64Array, Int64Array]:
            similar = judged = products(x, allowed.y, rows[entries]).numpy()
            if not allowed.own_judge:
                judged = products(*allowed.judge[:2], rows[entries]).numpy()
            return batch_losses(similar, judged, rows[entries], *fixed, breaks.affected)  # type: ignore[no-any-return]

        counts = np.zeros(REASONS, np.int64)
        for losses, broken in in_order(measure, equal_batches(offsets, x.dim, FEWER_ELEMENTS)):
            total += losses
            counts += broken
        breaks.by |= dict(zip(_KERNEL_REASONS, counts.tolist(), strict=True))
    forth, back = total / len(rows)
    return (float(forth), float(back)), breaks


def _within_batches(
    allowed: AllowedPairs, members: Int64Array, top: tuple[int, int], breaks: Breaks
) -> Float64Array:
    """(2,) sums of losses of the entries ``top`` of equal batches, (batches, rows).

    Each pair is met from both its rows, and counts twice in ``breaks``.
    """
    x, y, own = allowed.x, allowed.y, members[:, slice(*top)]
    mined, tau = allowed.mined, allowed.temperature
    x_own, y_own = gather(x, own), gather(y, own)
    positive = torch.linalg.vecdot(x_own, y_own).div_(tau)
    sums = [RunningLogSumExp(own.shape, x.device) for _ in range(2)]
    queries = torch.from_numpy(own).to(x.device)
    for left in spans(members.shape[1], TILE):
        others = members[:, slice(*left)]
        forth = x_own @ gather(y, others).mT
        back = forth.mT if top == left else y_own @ gather(x, others).mT
        keys = torch.from_numpy(others).to(x.device)
        highest = torch.maximum(forth, back)
        if not allowed.own_judge:
            there, here = allowed.judge[:2]
            highest = torch.maximum(
                gather(there, own) @ gather(here, others).mT,
                gather(here, own) @ gather(there, others).mT,
            )
        logits = [forth / tau, back / tau]
        by_negative = None
        if mined:
            of_others, of_own = partial(gather, indices=others), partial(gather, indices=own)
            logits[0], by_negative = mined.meet(x_own, of_others, keys, forth, tau)
            more = mined.meet(gather(x, others), of_own, queries, back.mT, tau)[1].mT
            by_negative = by_negative.maximum(more)
        masked = _broken(allowed, queries, keys, highest, breaks, by_negative)
        if top == left:
            masked.diagonal(dim1=1, dim2=2).fill_(True)  # the positive is added at the end
        for running, tile in zip(sums, logits, strict=True):
            running.add(tile.masked_fill_(masked, -torch.inf), 2, slice(None), consume=True)
    itself = mined.with_own(positive.flatten(), x, own.ravel(), tau).view_as(positive), positive
    losses = [
        torch.logaddexp(running.result(), own_logit) - positive
        for running, own_logit in zip(sums, itself, strict=True)
    ]
    return torch.stack(losses).sum(dim=(1, 2)).cpu().numpy()


def _broken(
    allowed: AllowedPairs,
    rows: torch.Tensor,
    columns: torch.Tensor,
    highest: torch.Tensor,
    breaks: Breaks,
    by_negative: torch.Tensor | None,
) -> torch.Tensor:
    """Whether pairs of distinct rows break the guard, bool (..., R, C), counted in ``breaks``.

    The arguments are those of `AllowedPairs.excess`; ``by_negative`` is the largest similarity of
    any of their documents.
    """
    different = rows.unsqueeze(-1) != columns.unsqueeze(-2)
    reasons = {"similarity": allowed.excess(rows, columns, highest).ge(0).logical_and_(different)}
    if by_negative is not None:
        reached = allowed.excess(rows, columns, by_negative).ge(0)
        reached.logical_or_(allowed.mined.answers(rows, columns)).logical_and_(different)
        reasons["negative"] = reached & ~reasons["similarity"]
    for reason, same in allowed.same(rows, columns):
        same.logical_and_(different)
        reasons[reason] = reasons[reason] | same if reason in reasons else same
    broken = torch.stack(list(reasons.values())).any(dim=0)
    for reason, mask in (*reasons.items(), ("any", broken)):
        breaks.by[reason] += int(mask.sum())
    breaks.affected[rows[broken.any(dim=-1)].cpu().numpy()] = True
    return broken
