"""Rounds: pairs of batches, none in two of them, improved in parallel, a few in one product."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.refinement.blocks import Block, block_loss, judge
from batchplan.refinement.kernel import Search, climb
from batchplan.refinement.masks import masks_from, rows_at
from batchplan.refinement.objective import Int64Array, Objective

Side = NDArray[np.int8]

_ENTRIES = 1 << 17  # of the similarity blocks that one thread works on at a time
_EQUAL = 1e-10  # relative: float64 losses closer than this are equal
_UNDERFLOW = 1e-30  # sums of float32 terms below this may lack some


def improve_round(
    rows: Int64Array,
    offsets: Int64Array,
    pairs: Int64Array,
    objective: Objective,
    masked: bool,
    search: Search,
    pool: ThreadPoolExecutor,
) -> tuple[float, NDArray[np.bool_]]:
    """Improve all pairs of batches (K, 2) in place: exchange rows where that helps.

    Returns:
        By how much the loss rose, and bool (K,), which pairs changed.
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
    """Numbers of the rows of ``sizes`` (K, 1 or 2) that are equal, a few at a time.

    How many depends on the sizes alone, so that a block is computed the same way whatever the
    number of threads.
    """
    groups = []
    for one in np.unique(sizes, axis=0):
        members = np.flatnonzero((sizes == one).all(axis=1))
        step = max(1, int(_ENTRIES // one.sum() ** 2))
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
    x, y = (rows_at(part, members) for part in (objective.x, objective.y))
    similarities = torch.bmm(x, y.mT)
    masks, hidden = np.empty((count, 0, 0), np.uint8), None
    if masked:
        masks = masks_from(objective, members, similarities)
        hidden = torch.from_numpy(masks).bool()
    ways = (similarities.mT.contiguous(), similarities)
    terms = torch.stack([_terms(way, hidden, objective.temperature) for way in ways], dim=1)
    kinds = objective.kinds[members] if len(objective.kinds) else np.empty((count, 0), np.int64)
    before = np.zeros(m, np.int8)
    before[first:] = 1
    sides = np.tile(before, (count, 1))
    penalty = objective.penalty
    gains, similar, broken, smallest = _climb_all(
        terms.numpy(), masks, penalty, kinds, sides, search
    )
    changed = np.zeros(count, np.bool_)
    for pair in np.flatnonzero((sides != before).any(axis=1)):
        worth = penalty * similar[pair]
        # The sign of a gain within what float32 products may be off by is found in float64.
        doubt = _rounding(x[pair], y[pair], objective.temperature)
        unsure = broken[pair] == 0 and abs(gains[pair] + worth) < doubt
        if smallest[pair] < _UNDERFLOW or unsure:
            logits = (x[pair].double() @ y[pair].double().mT / objective.temperature).numpy()
            was, now = (block_loss(logits, masks[pair], side) for side in (before, sides[pair]))
            gains[pair] = 0.0 if abs(now - was) <= _EQUAL * (1 + abs(was)) else now - was
        changed[pair] = broken[pair] > 0 or (broken[pair] == 0 and gains[pair] + worth > 0)
        if changed[pair]:
            rows[places[pair]] = _exchanged(members[pair], before, sides[pair])
    return np.where(changed, gains, 0.0), changed


def _rounding(x: torch.Tensor, y: torch.Tensor, temperature: float) -> float:
    """A bound in nats on what rounding to float32 does to the difference of two losses of a block:
    products of d terms, and exponents of up to 88 of these over the temperature."""
    m, d = x.shape
    longest = float(x.square().sum(1).max().sqrt() * y.square().sum(1).max().sqrt())
    return 4 * m * (2 * (d + 8) * 2.0**-24 * longest / temperature + 100 * 2.0**-24)


def _terms(
    similarities: torch.Tensor, hidden: torch.Tensor | None, temperature: float
) -> torch.Tensor:
    """exp(s / tau) over the largest of each column; 0 where hidden."""
    if hidden is not None:
        similarities = similarities.masked_fill(hidden, -torch.inf)
    return similarities.sub(similarities.amax(1, keepdim=True)).div_(temperature).exp_()


@njit
def _climb_all(terms, masks, penalty, kinds, sides, search):  # type: ignore[no-untyped-def]
    """`climb` and `judge` each block."""
    count = len(sides)
    gains, smallest = np.empty(count), np.empty(count)
    similar, broken = np.empty(count, np.int64), np.empty(count, np.int64)
    for pair in range(count):
        block = Block(terms[pair], masks[pair], penalty, kinds[pair])
        before = sides[pair].copy()
        climb(block, sides[pair], search)
        gains[pair], similar[pair], broken[pair], smallest[pair] = judge(block, before, sides[pair])
    return gains, similar, broken, smallest


def _exchanged(members: Int64Array, before: Side, after: Side) -> Int64Array:
    """The rows in place: each that leaves a side changes places with one that comes."""
    out = members.copy()
    leaving, coming = np.flatnonzero(after > before), np.flatnonzero(after < before)
    out[leaving], out[coming] = members[coming], members[leaving]
    return out
