"""The similarities and the terms of the rows of a few blocks, computed on the device of the rows.

All terms of a block are divided by one factor, so that both directions share their exponentials. If
the logits spread too far for that, each sum has its own factor.
"""

import numpy as np
import torch

from batchplan.data.candidates import Candidates
from batchplan.kernels import njit
from batchplan.refinement.blocks import COUNTED
from batchplan.refinement.objective import Objective, Sides
from batchplan.typing import Float32Array, Int64Array

# Largest range of logits that share a factor: e^60 times a few thousand terms is well within
# float32, and so is e^-20 times the smallest term of a row with itself.
_SPREAD = 120.0


def similarities_of(objective: Objective, members: Int64Array) -> tuple[torch.Tensor, torch.Tensor]:
    """The similarities of the rows (blocks, m) of each block.

    Returns:
        float32 (blocks, ways, m, m), s_ij. Pairs have one way for both directions; with mined
        negatives the first way is x to all documents and the last x to y; for lists, see
        `listed_similarities`. And float32 (blocks, m, m), the largest product of each anchor with a
        document of each other row.
    """
    if objective.lists is not None:
        similarities, listed = listed_similarities(objective.lists, members)
        return torch.from_numpy(similarities), torch.from_numpy(listed)
    pairs = products(objective.sides, members)
    if not len(objective.negatives):
        return pairs.unsqueeze(1), pairs
    tau = objective.temperature
    rows = torch.from_numpy(members).to(pairs.device)
    logits, largest = pairs / tau, pairs.clone()
    for number, negatives in enumerate(objective.negatives):
        mined = products((objective.x, negatives), members)
        torch.maximum(largest, mined, out=largest)  # a missing one has the rows of the positive
        mined.div_(tau)
        if objective.missing is not None:
            mined.masked_fill_(objective.missing[number][rows].unsqueeze(1), -torch.inf)
        torch.logaddexp(logits, mined, out=logits)
    return torch.stack((logits.mul_(tau), pairs), dim=1), largest


def listed_similarities(
    lists: Candidates, members: Int64Array
) -> tuple[Float32Array, Float32Array]:
    """`similarities_of` from mined lists instead of vectors.

    Returns:
        float32 (blocks, 2, m, m): from x to y the scores of listed rows, and the floor of the list
        for others; from y to x the own pair, and -inf for others. And float32 (blocks, m, m), the
        scores of listed rows, and -inf for others, about which no guard can judge.
    """
    count, m = members.shape
    similarities = np.empty((count, 2, m, m), np.float32)
    listed = np.empty((count, m, m), np.float32)
    own = lists.indptr, lists.indices, lists.scores, lists.positive, lists.floors
    _look_up(own, members, similarities, listed)
    return similarities, listed


@njit
def _look_up(lists, members, similarities, listed):  # type: ignore[no-untyped-def]
    indptr, indices, scores, positive, floors = lists
    m = members.shape[1]
    bits = 2
    while (1 << bits) < 4 * m:
        bits += 1
    names, places = np.empty(1 << bits, np.int32), np.empty(1 << bits, np.int32)
    for block in range(len(members)):
        rows, forth, back = members[block], similarities[block, 0], similarities[block, 1]
        names[:] = -1
        for i in range(m):
            slot = _slot(rows[i], names, bits)
            names[slot], places[slot] = rows[i], i
        back[:] = -np.inf
        listed[block] = -np.inf
        for i in range(m):
            row = rows[i]
            forth[i] = floors[row]
            for e in range(indptr[row], indptr[row + 1]):
                slot = _slot(np.int64(indices[e]), names, bits)
                if names[slot] >= 0:
                    forth[i, places[slot]] = scores[e]
                    listed[block, i, places[slot]] = scores[e]
            forth[i, i] = back[i, i] = listed[block, i, i] = positive[row]


@njit
def _slot(row, names, bits):  # type: ignore[no-untyped-def]
    """The slot of a row in the hash table of a block, or the free slot where it would be.

    A table of a few kilobytes stays in the cache; an array with a place for each of N rows would
    not.
    """
    slot = ((np.int64(row) * 2654435769) & 0xFFFFFFFF) >> (32 - bits)
    while names[slot] >= 0 and names[slot] != row:
        slot = (slot + 1) & ((1 << bits) - 1)
    return slot


def products(sides: Sides, members: Int64Array) -> torch.Tensor:
    """float32 (blocks, m, m): x_i . y_j of the rows (blocks, m) of each block."""
    rows = torch.from_numpy(members.ravel()).to(sides[0].device)
    shape = (*members.shape, sides[0].shape[1])
    x, y = (side.index_select(0, rows).view(shape) for side in sides)
    return torch.bmm(x, y.mT)


def terms_of(similarities: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(s / tau), divided by a factor of each block: the geometric mean of the largest term and
    of the smallest term of a row with itself.

    Returns:
        float32 (blocks, 2, m, m), the terms of x to y and of y to x; and bool (blocks,), whether
        their range is too wide for float32.
    """
    count, ways, m, _ = similarities.shape
    largest = similarities.amax((1, 2, 3))
    least = similarities.diagonal(dim1=2, dim2=3).amin((1, 2))
    terms = similarities.new_empty((count, 2, m, m))
    centre = largest.lerp(least, 0.5)[:, None, None]
    torch.sub(similarities[:, -1], centre, out=terms[:, 1]).div_(temperature).exp_()
    if ways == 1:
        terms[:, 0] = terms[:, 1].mT
    else:
        torch.sub(similarities[:, 0].mT, centre, out=terms[:, 0]).div_(temperature).exp_()
    return terms, ~((largest - least) / temperature <= _SPREAD)


@njit
def fill_terms(similarities, mask, temperature, out):  # type: ignore[no-untyped-def]
    """The terms of a block in which each sum has its own factor, so that its largest term is 1.

    Args:
        similarities: float32 (ways, m, m).
        mask: uint8 (m, m), or (0, 0) if all count.
        temperature: tau.
        out: float32 (2, m, m), filled.
    """
    m = similarities.shape[1]
    tau = np.float32(temperature)
    for way in range(2):
        own = similarities[-1 if way else 0]
        for i in range(m):
            peak = own[i, i]
            for u in range(m):
                s = own[u, i] if way else own[i, u]
                if not mask.size or mask[u, i] == COUNTED:
                    peak = max(peak, s)
            for u in range(m):
                s = own[u, i] if way else own[i, u]
                counts = not mask.size or mask[u, i] == COUNTED
                out[way, u, i] = np.exp((s - peak) / tau) if counts else np.float32(0)


@njit
def hide(mask, terms):  # type: ignore[no-untyped-def]
    """Set the terms, float32 (2, m, m), of pairs that do not count to 0."""
    for way in range(2):
        for u in range(len(mask)):
            for i in range(len(mask)):
                if mask[u, i] != COUNTED:
                    terms[way, u, i] = np.float32(0)
