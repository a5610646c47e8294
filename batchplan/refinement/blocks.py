"""Blocks of two batches: their loss, and the relations of their rows.

The loss of a batch is the sum, over its rows and both directions, of log sum_j exp(s_ij / tau),
without the part of the positives, which no swap changes. A pair of batches is a *block* of m rows.
Each row is on side 0 or 1.

``terms[u, i]`` is what row u adds to the sum of row i if both are on one side. It is divided by a
factor of that sum, to be in the range of float32. Pairs that do not count have 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit

# The relations of a pair of rows, in the masks of a block.
COUNTED, SIMILAR, BROKEN, SAME_ROW = 0, 1, 2, 3

# Nats gained by separating two rows. APART, without a finite penalty: they are too similar; more
# than any loss. GROUP: they are of one group; more than all too similar pairs of a block. TWICE:
# they are the same row; more than both.
APART, GROUP, TWICE = 1e6, 1e9, 1e12
TINY = 1e-300  # below any sum
UNDERFLOW = 1e-30  # sums below this may lack terms that are too small for float32


class Block(NamedTuple):
    """Two batches of m rows together.

    Attributes:
        terms: float32 (2, m, m), of x to y and of y to x.
        mask: uint8 (m, m), the relation of each pair of rows; (0, 0) if all count.
        penalty: nats gained by separating a too similar pair.
        kinds: int64 (m,); only rows of the same kind are swapped. (0,) if there is one kind.
    """

    terms: NDArray[np.float32]
    mask: NDArray[np.uint8]
    penalty: float
    kinds: NDArray[np.int64]


@njit
def sums_of(terms, side, own, other):  # type: ignore[no-untyped-def]
    """Fill ``own`` and ``other`` with the sum of each row's terms on its side, and on the other."""
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
    """Nats gained by separating two rows of this relation."""
    least = penalty if relation == SIMILAR else 0.0
    more = GROUP if relation == BROKEN else least
    return TWICE if relation == SAME_ROW else more


@njit
def judge(block, before, after):  # type: ignore[no-untyped-def]
    """Compare two splits of a block, by sums that are computed again.

    Args:
        block: of m rows.
        before, after: int8 (m,), the side of each row, 0 or 1.

    Returns:
        The rise of the loss; the drop in too similar pairs; the drop in pairs that must be in
        different batches, -1 if a row is in a batch twice; the smallest sum, which shows whether
        the terms are in the range of float32; and ``moved``, the sum over rows of the share of
        their sum that comes or goes, whichever is larger. If terms have a relative error e, the
        error of the rise is at most 2 e ``moved``.
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
    """The loss of a block, the sum of log-sum-exps over pairs that count, whatever the logits.

    Args:
        logits: float64 (ways, m, m), s_ij / tau, see `terms.similarities_of`.
        mask, side: as in `Block` and `judge`.
    """
    m = side.size
    forth, back = logits[0], logits[-1]
    loss = 0.0
    for i in range(m):
        peak, peak_back = forth[i, i], back[i, i]
        for j in range(m):
            if side[i] == side[j] and (i == j or not mask.size or mask[i, j] == COUNTED):
                peak = max(peak, forth[i, j])
                peak_back = max(peak_back, back[j, i])
        total = total_back = 0.0
        for j in range(m):
            if side[i] == side[j] and (i == j or not mask.size or mask[i, j] == COUNTED):
                total += np.exp(forth[i, j] - peak)
                total_back += np.exp(back[j, i] - peak_back)
        loss += peak + peak_back + np.log(total) + np.log(total_back)
    return loss
