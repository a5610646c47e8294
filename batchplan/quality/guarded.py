"""The losses over the pairs that a guard allows, and the pairs that it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guardrules import GuardRules
from batchplan.quality.inbatch import TILE, equal_batches, gather
from batchplan.quality.logsumexp import RunningLogSumExp
from batchplan.quality.rows import Side, spans
from batchplan.runtime import full_float32

Int64Array = NDArray[np.int64]

_QUERIES = 1024
_COLUMNS = {"cpu": 1024, "cuda": 8192}
_ELEMENTS = 1 << 21  # numbers of the rows gathered to settle what float32 leaves in doubt


@dataclass(frozen=True, eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows that break it with another row of a batch of theirs.
        by: their number by reason; ``any`` counts those of several reasons once. Each pair is met
            from both its rows, and counts 2.
    """

    affected: torch.Tensor
    by: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("any", "similarity", "group", "duplicate"), 0)
    )


def guarded_batches(
    x: Side,
    y: Side,
    rows: Int64Array,
    offsets: Int64Array,
    temperature: float,
    rules: GuardRules,
    breaks: Breaks | None = None,
) -> tuple[float, float]:
    """Mean in-batch loss over the allowed pairs, x to y and y to x, in float64.

    Args:
        x, y: the data.
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
        temperature: tau.
        rules: which pairs are allowed.
        breaks: counts the others, if given.
    """
    losses = np.zeros(2)
    for entries in equal_batches(offsets, x.dim):
        members = rows[entries]
        for top in spans(entries.shape[1], TILE):
            losses += _against_batches(x, y, members, top, temperature, rules, breaks)
    forth, back = losses / len(rows)
    return float(forth), float(back)


def _against_batches(
    x: Side,
    y: Side,
    members: Int64Array,
    top: tuple[int, int],
    temperature: float,
    rules: GuardRules,
    breaks: Breaks | None,
) -> NDArray[np.float64]:
    """(2,) sums of losses: entries ``top`` of a few equal batches (batches, rows) against all."""
    own = members[:, slice(*top)]
    x_own, y_own = gather(x, own), gather(y, own)
    positive = torch.linalg.vecdot(x_own, y_own).div_(temperature)
    sums = [RunningLogSumExp(own.shape, x.device) for _ in range(2)]
    queries = torch.from_numpy(own).to(x.device)
    for left in spans(members.shape[1], TILE):
        others = members[:, slice(*left)]
        forth = x_own @ gather(y, others).mT
        back = forth.mT if top == left else y_own @ gather(x, others).mT
        keys = torch.from_numpy(others).to(x.device)
        masked = _broken(rules, queries, keys, torch.maximum(forth, back), breaks)
        if top == left:
            masked.diagonal(dim1=1, dim2=2).fill_(True)  # the positive is added at the end
        for running, tile in zip(sums, (forth, back), strict=True):
            logits = tile.div(temperature).masked_fill_(masked, -torch.inf)
            running.add(logits, 2, slice(None), consume=True)
    losses = [torch.logaddexp(one.result(), positive) - positive for one in sums]
    return torch.stack(losses).sum(dim=(1, 2)).cpu().numpy()


def _broken(
    rules: GuardRules,
    rows: torch.Tensor,
    columns: torch.Tensor,
    highest: torch.Tensor,
    breaks: Breaks | None,
) -> torch.Tensor:
    """Whether pairs of different rows break the guard, bool (..., R, C); those are counted."""
    reasons = {"similarity": rules.by_similarity(rows, columns, highest) >= 0}
    for reason in rules.codes:
        same = rules.by_code(reason, rows, columns)
        if same is not None:
            reasons[reason] = same
    different = rows.unsqueeze(-1) != columns.unsqueeze(-2)
    found = torch.stack([mask.logical_and_(different) for mask in reasons.values()]).any(dim=0)
    if breaks is not None:
        for reason, mask in (*reasons.items(), ("any", found)):
            breaks.by[reason] += int(mask.sum())
        breaks.affected[rows[found.any(dim=-1)]] = True
    return found


def guarded_rows(
    x: Side, y: Side, temperature: float, rules: GuardRules, advance: Callable[[int], None]
) -> tuple[tuple[float, float], int]:
    """Mean loss over all allowed pairs, x to y and y to x, and how many pairs are not allowed.

    Similarities are float32. What that leaves in doubt is computed again in float64, so that a pair
    breaks the guard here if it does in a batch.

    Args:
        x, y: the data.
        temperature: tau.
        rules: which pairs are allowed.
        advance: told of rows done.
    """
    losses, broken = np.zeros(2), 0
    for start, stop in spans(x.num_rows, _QUERIES):
        of_block, more = _against_all(x, y, start, stop, temperature, rules)
        losses += of_block
        broken += more
        advance(stop - start)
    forth, back = losses / x.num_rows
    return (float(forth), float(back)), broken // 2  # each pair was met from both its rows


def _against_all(
    x: Side, y: Side, start: int, stop: int, temperature: float, rules: GuardRules
) -> tuple[NDArray[np.float64], int]:
    """(2,) sums of losses of rows start to stop against all N, and the pairs that break the guard.

    Blocks end with rows of zeros (see `Side.block`), of which tiles are cut free.
    """
    count, width = stop - start, _COLUMNS.get(x.device.type, 1024)
    x_own, y_own = x.block(start, stop), y.block(start, stop)
    positive = torch.linalg.vecdot(x_own.double(), y_own.double())[:count] / temperature
    sums = [RunningLogSumExp((count,), x.device) for _ in range(2)]
    rows = torch.arange(start, stop, device=x.device)
    broken = 0
    with full_float32():
        for first, last in spans(x.num_rows, width):
            x_keys, y_keys = x.block(first, last), y.block(first, last)
            columns = torch.arange(first, last, device=x.device)
            forth = (x_own @ y_keys.T)[:count, : last - first]
            back = forth if x is y else (y_own @ x_keys.T)[:count, : last - first]
            slack = _rounding(x_own, y_keys).maximum(_rounding(y_own, x_keys))[:count]
            masked = _broken_tile(x, y, rules, rows, columns, forth.maximum(back), slack)
            broken += int(masked.sum())
            masked |= rows[:, None] == columns
            for running, tile in zip(sums, (forth, back), strict=True):
                logits = tile.div(temperature).masked_fill_(masked, -torch.inf)
                running.add(logits, 1, slice(None), consume=True)
    losses = [torch.logaddexp(one.result(), positive) - positive for one in sums]
    return torch.stack(losses).sum(dim=1).cpu().numpy(), broken


def _broken_tile(
    x: Side,
    y: Side,
    rules: GuardRules,
    rows: torch.Tensor,
    columns: torch.Tensor,
    highest: torch.Tensor,
    slack: torch.Tensor,
) -> torch.Tensor:
    """`_broken` of a float32 tile (R, C) whose rows are off by at most ``slack`` (R,)."""
    excess = rules.by_similarity(rows, columns, highest)
    found = excess >= 0
    for reason in rules.codes:
        same = rules.by_code(reason, rows, columns)
        if same is not None:
            found |= same
            excess.masked_fill_(same, torch.inf)  # no doubt about these
    found &= rows[:, None] != columns
    doubt = (excess.abs() <= slack[:, None]) & (rows[:, None] != columns)
    pairs = torch.nonzero(doubt)
    for first, last in spans(len(pairs), max(1, _ELEMENTS // x.dim)):
        some = pairs[first:last]
        i, j = rows[some[:, 0]].cpu().numpy(), columns[some[:, 1]].cpu().numpy()
        exact = torch.linalg.vecdot(x.gather(i), y.gather(j))
        exact = exact.maximum(torch.linalg.vecdot(y.gather(i), x.gather(j)))
        pair = rows[some[:, :1]], columns[some[:, 1:]], exact[:, None, None]
        found[some[:, 0], some[:, 1]] = rules.by_similarity(*pair)[:, 0, 0] >= 0
    return found


def _rounding(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """float32 (R,): a bound of the rounding errors of the products of each query with all keys.

    Twice the bound of a dot product summed in any order, for the rounding of the bound itself.
    """
    lengths: torch.Tensor = torch.linalg.vector_norm(queries, dim=1)
    longest = torch.linalg.vector_norm(keys, dim=1).max()
    return lengths.mul_(longest).mul_(queries.shape[1] * torch.finfo(torch.float32).eps)
