"""Rounds: disjoint pairs of batches are improved in parallel, several pairs in one product."""

from concurrent.futures import Executor

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.refinement.blocks import UNDERFLOW, Block, block_loss, judge
from batchplan.refinement.kernel import Search, climb
from batchplan.refinement.masks import masks_from
from batchplan.refinement.objective import Objective, Sides
from batchplan.refinement.terms import (
    fill_terms,
    listed_similarities,
    products,
    similarities_of,
)
from batchplan.typing import Int64Array

_ENTRIES = 1 << 18  # similarities in the blocks of one product, at most
_GROUPS = 16  # for as many threads, products of a round are down to a quarter as large
_EQUAL = 1e-10  # float64 losses with a smaller relative difference are equal


def improve_round(
    rows: Int64Array,
    offsets: Int64Array,
    pairs: Int64Array,
    objective: Objective,
    masked: bool,
    search: Search,
    pool: Executor,
) -> tuple[float, NDArray[np.bool_]]:
    """Exchange rows between the batches of each pair (K, 2), in place, if that helps.

    Returns:
        The rise of the loss, and bool (K,), whether each pair changed.
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
        gains[chosen], changed[chosen] = _improve(objective, rows, places, own, masked, search)

    for _ in pool.map(work, alike(sizes[pairs])):
        pass
    return float(gains.sum()), changed


def alike(sizes: Int64Array) -> list[Int64Array]:
    """Indices of equal rows of ``sizes`` (K, 1 or 2), in groups for one product each.

    The size of a group does not depend on the number of threads, so neither do the results.
    """
    groups = []
    keys = (sizes[:, 0] << 32) + sizes[:, -1]
    for key in np.unique(keys):
        members = np.flatnonzero(keys == key)
        most = int(_ENTRIES // sizes[members[0]].sum() ** 2)
        step = max(1, min(most, max(most // 4, -(-len(members) // _GROUPS))))
        groups += [members[start : start + step] for start in range(0, len(members), step)]
    return groups


def _improve(
    objective: Objective,
    rows: Int64Array,
    places: Int64Array,
    first: int,
    masked: bool,
    search: Search,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`improve_round` for pairs of batches with the same two sizes.

    Args:
        objective: what to raise.
        rows: int64 (entries,), the rows of all batches, changed in place.
        places: int64 (pairs, m), the distinct places in ``rows`` of the two batches of each pair.
        first: rows of the first batch of each pair.
        masked: whether some pairs of rows do not count, or both batches may have the same row.
        search: how hard to try.

    Returns:
        For each pair of batches: float64, the rise of the loss; and bool, whether it changed.
    """
    members = rows[places]
    count, m = members.shape
    similarities, largest = similarities_of(objective, members)
    masks = np.empty((count, 0, 0), np.uint8)
    if masked:
        judged = largest
        if objective.reference is not None:
            judged = products(objective.reference, members)
        masks = masks_from(objective, members, judged.cpu())
    kinds = objective.kinds[members] if len(objective.kinds) else np.empty((count, 0), np.int64)
    before = np.zeros(m, np.int8)
    before[first:] = 1
    sides = np.tile(before, (count, 1))
    blocks = similarities.cpu().numpy(), masks, kinds
    numbers = objective.temperature, objective.penalty
    # Rounding steps of products of d numbers over the temperature, and of exponentials up to e^88,
    # which are summed over documents.
    of_products = 2 * (objective.x.shape[1] + 8) / objective.temperature
    steps = of_products, 200 + 400 * len(objective.negatives)
    gains, parted, broken, exact = _climb_all(
        blocks, numbers, (members, objective.lengths, steps), sides, search
    )
    for pair in np.flatnonzero(exact):
        logits = _logits(objective, members[pair])
        was, now = (block_loss(logits, masks[pair], side) for side in (before, sides[pair]))
        gains[pair] = 0.0 if abs(now - was) <= _EQUAL * (1 + abs(was)) else now - was
    changed = (broken > 0) | ((broken == 0) & (gains + parted > 0))
    _exchange(rows, places, members, first, sides, changed)
    return np.where(changed, gains, 0.0), changed


def _logits(objective: Objective, members: Int64Array) -> NDArray[np.float64]:
    """float64 (ways, m, m): the logits of a block, with the ways of `similarities_of`."""
    if objective.lists is not None:
        scores = listed_similarities(objective.lists, members[None])[0][0]
        found: NDArray[np.float64] = scores.astype(np.float64) / objective.temperature
        return found
    rows = torch.from_numpy(members).to(objective.x.device)

    def exact(sides: Sides) -> torch.Tensor:
        x, y = (side[rows].double() for side in sides)
        return x @ y.mT

    pairs = exact(objective.sides)
    ways = [pairs]
    for number, negatives in enumerate(objective.negatives):
        mined = exact((objective.x, negatives))
        if objective.missing is not None:
            mined[:, objective.missing[number][rows]] = -torch.inf
        tau = objective.temperature
        ways = [torch.logaddexp(ways[0] / tau, mined / tau) * tau, pairs]
    logits: NDArray[np.float64] = (torch.stack(ways) / objective.temperature).cpu().numpy()
    return logits


@njit
def _climb_all(blocks, numbers, rounded, sides, search):  # type: ignore[no-untyped-def]
    """`climb` and `judge` each block.

    Returns:
        For each block: the rise of its loss; the nats gained by separating too similar rows; the
        drop in pairs that must be in different batches; and whether the sign of the total is
        certain only in float64.
    """
    similarities, masks, kinds = blocks
    temperature, penalty = numbers
    members, lengths, steps = rounded
    count = len(sides)
    gains, parted = np.zeros(count), np.zeros(count)
    broken, exact = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    m = sides.shape[1]
    terms = np.empty((2, m, m), np.float32)
    for pair in range(count):
        mask = masks[pair]
        fill_terms(similarities[pair], mask, temperature, terms)
        block = Block(terms, mask, penalty, kinds[pair])
        before = sides[pair].copy()
        if not climb(block, sides[pair], search):
            continue
        gain, similar, broken[pair], smallest, moved = judge(block, before, sides[pair])
        gains[pair], parted[pair] = gain, penalty * similar
        error = _rounding(members[pair], lengths, steps)
        doubt = 2 * moved * error * np.exp(2 * error)
        unsure = broken[pair] == 0 and not abs(gain + parted[pair]) >= doubt
        exact[pair] = broken[pair] >= 0 and (unsure or smallest < UNDERFLOW)
    return gains, parted, broken, exact


@njit(inline="always")
def _rounding(rows, lengths, steps):  # type: ignore[no-untyped-def]
    """A bound on the relative rounding error of a term in float32."""
    x = y = 0.0
    for row in rows:
        x, y = max(x, lengths[0, row]), max(y, lengths[1, row])
    of_products, others = steps
    return (of_products * x * y + others) * 2.0**-24


@njit
def _exchange(rows, places, members, first, sides, changed):  # type: ignore[no-untyped-def]
    """Swap each of the ``first`` rows that changed sides with another row that did."""
    for pair in np.flatnonzero(changed):
        other = first
        for here in range(first):
            if sides[pair, here] == 0:
                continue
            while sides[pair, other] == 1:
                other += 1
            rows[places[pair, here]] = members[pair, other]
            rows[places[pair, other]] = members[pair, here]
            other += 1
