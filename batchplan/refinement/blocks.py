"""Two batches together: their loss, and what their rows are to each other.

The loss of a batch is the sum, over its rows and both directions, of log sum_j exp(s_ij / tau);
what the positives add never changes. A pair of batches is a *block* of m rows, each on a side, 0
or 1.

``terms[u, i]`` is what row u adds to the sum of row i when both are on one side, divided by a
factor of the sum, so that float32 holds it. Pairs of rows that do not count have 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit

# What a pair of rows is to each other, in the masks of a block.
COUNTED, UNCOUNTED, SIMILAR, BROKEN, SAME_ROW = 0, 1, 2, 3, 4

# Nats. Without a finite penalty, what is too similar outweighs any loss; rows of a group outweigh
# any number of such pairs in a block, and a row that is twice in a batch any number of those.
APART, GROUP, TWICE = 1e6, 1e9, 1e12
TINY = 1e-300  # below any sum
UNDERFLOW = 1e-30  # sums of float32 terms below this may lack some


class Block(NamedTuple):
    """Two batches of m rows together.

    Attributes:
        terms: float32 (2, m, m), of x to y and of y to x.
        mask: uint8 (m, m), what each pair of rows is to each other; (0, 0) where all count.
        penalty: nats that a pair which is too similar is worth parting for.
        kinds: int64 (m,); only rows of one kind are swapped. (0,) where all are of one.
    """

    terms: NDArray[np.float32]
    mask: NDArray[np.uint8]
    penalty: float
    kinds: NDArray[np.int64]


@njit
def sums_of(terms, side, own, other):  # type: ignore[no-untyped-def]
    """Of each row the sum of the terms of its side, and of the other side."""
    m = side.size
    sums = np.zeros((2, m))
    for u in range(m):
        _add(terms[u], sums[side[u]])
    for i in range(m):
        own[i] = max(sums[side[i], i], TINY)
        other[i] = sums[1 - side[i], i]


@njit
def _add(terms, sums):  # type: ignore[no-untyped-def]
    for i in range(sums.size):
        sums[i] += terms[i]


@njit
def weight(relation, penalty):  # type: ignore[no-untyped-def]
    """Nats that it is worth to have two rows of this relation apart."""
    least = penalty if relation == SIMILAR else 0.0
    more = GROUP if relation == BROKEN else least
    return TWICE if relation == SAME_ROW else more


@njit
def judge(block, before, after):  # type: ignore[no-untyped-def]
    """What a block gained from one split to another, from sums made afresh.

    Args:
        block: of m rows.
        before, after: int8 (m,), the side of each row, 0 or 1.

    Returns:
        The rise of the loss; how many fewer pairs are too similar; how many fewer must be apart
        anyhow, -1 where a row is twice in a batch; the smallest sum, which tells whether float32
        held the terms; and the share of each sum that comes or goes, whichever is more, added up:
        if terms are off by a factor of 1 + e, the rise is off by no more than twice that times e.
    """
    m, mask = before.size, block.mask
    gain, smallest, moved = 0.0, np.inf, 0.0
    for terms in block.terms:
        sums = np.zeros((4, m))  # by the side before, and the side after
        for u in range(m):
            _add(terms[u], sums[2 * before[u] + after[u]])
        for i in range(m):
            stays = sums[2 * before[i] + after[i], i]
            goes = sums[2 * before[i] + 1 - after[i], i]
            comes = sums[2 - 2 * before[i] + after[i], i]
            was, now = max(stays + goes, TINY), max(stays + comes, TINY)
            gain += np.log(now / was)
            smallest = min(smallest, now, was)
            moved += max(goes / was, comes / now)
    similar = broken = twice = 0
    if mask.size:
        for i in range(m):
            for j in range(i):
                parted = (before[i] == before[j]) * 1 - (after[i] == after[j]) * 1
                similar += parted * (mask[i, j] == SIMILAR)
                broken += parted * (mask[i, j] == BROKEN)
                twice += (parted < 0) & (mask[i, j] == SAME_ROW)
    if twice:
        similar, broken = 0, -1
    return gain, similar, broken, smallest, moved


@njit
def block_loss(logits, mask, side):  # type: ignore[no-untyped-def]
    """The sum of log sum exp over what counts, for logits of any size.

    Args:
        logits: float64 (m, m), s_ij / tau.
        mask, side: as in `Block` and `judge`.
    """
    m = side.size
    loss = 0.0
    for i in range(m):
        peak = peak_back = logits[i, i]
        for j in range(m):
            if side[i] == side[j] and (i == j or not mask.size or mask[i, j] == COUNTED):
                peak = max(peak, logits[i, j])
                peak_back = max(peak_back, logits[j, i])
        total = total_back = 0.0
        for j in range(m):
            if side[i] == side[j] and (i == j or not mask.size or mask[i, j] == COUNTED):
                total += np.exp(logits[i, j] - peak)
                total_back += np.exp(logits[j, i] - peak_back)
        loss += peak + peak_back + np.log(total) + np.log(total_back)
    return loss
