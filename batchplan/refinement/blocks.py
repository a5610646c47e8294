"""A few pairs of batches at a time: their similarities in one product, then `climb` on each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.refinement.kernel import APART, block_loss, climb, judge, make_mask
from batchplan.refinement.objective import Int64Array, Objective

Side = NDArray[np.int8]
Mask = NDArray[np.uint8]

_EQUAL = 1e-10  # relative: float64 losses closer than this are equal
_UNDERFLOW = 1e-30  # sums of float32 terms below this may lack some


@dataclass(frozen=True)
class Search:
    """How hard `climb` tries, see there."""

    top: int = 4
    patience: int = 4
    floor: float = 1e-3


# Only what keeps more rows apart, whatever it costs.
REPAIR = Search(patience=0, floor=APART / 2)


def improve(
    objective: Objective,
    rows: Int64Array,
    places: Int64Array,
    first: int,
    masked: bool,
    search: Search,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Exchange rows between the two batches of each of a few pairs, where it helps.

    Args:
        objective: what to raise.
        rows: int64 (entries,), the rows of all batches, changed in place.
        places: int64 (pairs, m), where in ``rows`` the two batches of each pair are; no place
            twice.
        first: rows of the first batch of each pair.
        masked: whether some pairs of rows do not count, or a row may be in both batches.
        search: how hard to try.

    Returns:
        Of each pair of batches: float64, by how much the loss rose; and bool, whether it changed.
    """
    members = rows[places]
    count, m = members.shape
    x, y = (_gather(part, members) for part in (objective.x, objective.y))
    similarities = torch.bmm(x, y.mT)
    masks = _masks(objective, members, similarities) if masked else None
    hidden = None if masks is None else torch.from_numpy(masks).bool()
    back = _terms(similarities, hidden, objective.temperature)
    forth = _terms(similarities.mT.contiguous(), hidden, objective.temperature)
    kinds = objective.kinds[members] if len(objective.kinds) else np.empty((count, 0), np.int64)
    before = np.zeros(m, np.int8)
    before[first:] = 1
    sides = np.tile(before, (count, 1))
    gains, smallest, changed = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    fewer = np.zeros((2, count), np.int64)
    masks = np.empty((count, 0, 0), np.uint8) if masks is None else masks
    _climb_all(
        forth.numpy(), back.numpy(), masks, objective.penalty, kinds, before, sides,
        search.top, search.patience, search.floor, gains, fewer, smallest,
    )  # fmt: skip
    for pair in np.flatnonzero((sides != before).any(axis=1)):
        similar, broken = fewer[:, pair]
        worth = objective.penalty * similar
        # The sign of a gain within what float32 products may be off by is found in float64.
        doubt = _rounding(x[pair], y[pair], objective.temperature)
        if smallest[pair] < _UNDERFLOW or (broken == 0 and abs(gains[pair] + worth) < doubt):
            logits = (x[pair].double() @ y[pair].double().mT / objective.temperature).numpy()
            was, now = (block_loss(logits, masks[pair], side) for side in (before, sides[pair]))
            gains[pair] = 0.0 if abs(now - was) <= _EQUAL * (1 + abs(was)) else now - was
        changed[pair] = broken > 0 or (broken == 0 and gains[pair] + worth > 0)
        if changed[pair]:
            rows[places[pair]] = _exchanged(members[pair], before, sides[pair])
    return np.where(changed, gains, 0.0), changed


def _rounding(x: torch.Tensor, y: torch.Tensor, temperature: float) -> float:
    """A bound in nats on what rounding to float32 does to the difference of two losses of a block:
    products of d terms, and exponents of up to 88 of these over the temperature."""
    m, d = x.shape
    longest = float(x.square().sum(1).max().sqrt() * y.square().sum(1).max().sqrt())
    return 4 * m * (2 * (d + 8) * 2.0**-24 * longest / temperature + 100 * 2.0**-24)


def _gather(rows: torch.Tensor, members: Int64Array) -> torch.Tensor:
    """float32 (pairs, m, d)."""
    return rows[torch.from_numpy(members.ravel())].view(*members.shape, rows.shape[1])


def _terms(
    similarities: torch.Tensor, hidden: torch.Tensor | None, temperature: float
) -> torch.Tensor:
    """exp(s / tau) over the largest of each column; 0 where hidden."""
    if hidden is not None:
        similarities = similarities.masked_fill(hidden, -torch.inf)
    return similarities.sub(similarities.amax(1, keepdim=True)).div_(temperature).exp_()


def masks_of(objective: Objective, members: Int64Array) -> Mask:
    """uint8 (batches, m, m): what the rows (batches, m) of batches are to each other."""
    if objective.guard.ceilings is None and not objective.window.shape[1]:
        return _masks(objective, members, None)
    x, y = (_gather(part, members) for part in (objective.x, objective.y))
    return _masks(objective, members, torch.bmm(x, y.mT))


def _masks(objective: Objective, members: Int64Array, similarities: torch.Tensor | None) -> Mask:
    """``similarities`` may be left out where nothing depends on them."""
    shape = (*members.shape, members.shape[1])
    masks = np.empty(shape, np.uint8)
    known = np.zeros(shape, np.float32) if similarities is None else similarities.numpy()
    ceilings = objective.guard.ceilings
    if ceilings is None:
        ceilings = np.empty(0, np.float32)
    _mask_all(known, members, ceilings, objective.guard.codes(), objective.window, masks)
    return masks


@njit
def _mask_all(similarities, members, ceilings, codes, window, masks):  # type: ignore[no-untyped-def]
    for pair in range(len(members)):
        make_mask(similarities[pair], members[pair], ceilings, codes, window, masks[pair])


@njit
def _climb_all(  # type: ignore[no-untyped-def]
    forth, back, masks, penalty, kinds, before, sides, top, patience, floor, gains, fewer, smallest
):
    for pair in range(len(sides)):
        side, mask = sides[pair], masks[pair]
        climb(forth[pair], back[pair], mask, penalty, kinds[pair], side, top, patience, floor)
        gains[pair], fewer[0, pair], fewer[1, pair], smallest[pair] = judge(
            forth[pair], back[pair], mask, before, side
        )


def _exchanged(members: Int64Array, before: Side, after: Side) -> Int64Array:
    """The rows in place: each that leaves a side changes places with one that comes."""
    out = members.copy()
    leaving, coming = np.flatnonzero(after > before), np.flatnonzero(after < before)
    out[leaving], out[coming] = members[coming], members[leaving]
    return out
