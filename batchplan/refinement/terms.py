"""The similarities of the rows of a few blocks, computed on the device of the rows, and the terms
of a block, computed on the CPU."""

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
_TILE = 16  # columns that are transposed at once

# The constants of `expf` in Cephes (Moshier 1989): ln 2 in two parts, and the polynomial.
_LOWEST, _LOG2_E = np.float32(-87), np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = (
    np.float32(1.9875691500e-4),
    np.float32(1.3981999507e-3),
    np.float32(8.3334519073e-3),
)
_P3, _P4, _P5 = (
    np.float32(4.1665795894e-2),
    np.float32(1.6666665459e-1),
    np.float32(5.0000001201e-1),
)


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


@njit
def fill_terms(similarities, mask, temperature, out):  # type: ignore[no-untyped-def]
    """Fill the terms exp(s / tau) of a block; pairs that do not count get 0.

    All are divided by one factor, so that both directions share their exponentials: the geometric
    mean of the largest term and of the smallest term of a row with itself. If the logits spread too
    far for that, each sum has its own factor.

    Args:
        similarities: float32 (ways, m, m), see `similarities_of`.
        mask: uint8 (m, m), or (0, 0) if all count.
        temperature: tau.
        out: float32 (2, m, m), filled with the terms of x to y and of y to x.
    """
    m = similarities.shape[1]
    forth, back = similarities[0], similarities[-1]
    peaks, least = np.full(m, np.float32(-np.inf)), back[0, 0]
    for i in range(m):
        _raise(peaks, back[i])
        if len(similarities) > 1:
            _raise(peaks, forth[i])
        least = min(least, forth[i, i], back[i, i])
    largest = peaks[0]
    for peak in peaks:  # `peaks.max()` would take as long to compile as all the rest
        largest = max(largest, peak)
    if not (largest - least) / temperature <= _SPREAD:
        _fill_each(similarities, mask, temperature, out)
        return
    centre, scale = np.float32(0.5) * (largest + least), np.float32(1 / temperature)
    powers, rows = np.empty(m, np.int32), out[1]
    for i in range(m):
        _exponentials(back[i], centre, scale, powers, rows[i])
    if len(similarities) > 1:
        rows = np.empty((m, m), np.float32)
        for i in range(m):
            _exponentials(forth[i], centre, scale, powers, rows[i])
    for start in range(0, m, _TILE):
        for u in range(m):
            for i in range(start, min(start + _TILE, m)):
                out[0, u, i] = rows[i, u]
    if mask.size:
        _hide(mask, out)


@njit(fastmath={"nnan", "nsz"})
def _raise(peaks, values):  # type: ignore[no-untyped-def]
    """Raise each of the peaks to its value. The largest of a row would take ten times as long, as
    it does not become vector instructions."""
    for i in range(peaks.size):
        peaks[i] = max(peaks[i], values[i])


@njit
def _exponentials(values, centre, scale, powers, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with exp(scale (value - centre)), and 0 where that is below e^-87.

    The method is from `expf` in Cephes: exp(x) = 2^n exp(r), with a polynomial for exp(r). Its
    loops become vector instructions, and it has the same digits on all processors.

    Args:
        values, out: float32 (m,).
        centre, scale: float32; the largest x is at most `_SPREAD` / 2.
        powers: int32 (m,), room for the bits of 2^n.
    """
    for i in range(out.size):
        x = (values[i] - centre) * scale
        n = np.floor(max(x, _LOWEST) * _LOG2_E + np.float32(0.5))
        r = max(x, _LOWEST) - n * _LN2_HIGH - n * _LN2_LOW
        p = _P0
        p = p * r + _P1
        p = p * r + _P2
        p = p * r + _P3
        p = p * r + _P4
        p = p * r + _P5
        out[i] = p * r * r + r + np.float32(1)
        powers[i] = (np.int32(n) + np.int32(127)) << np.int32(23) if x > _LOWEST else np.int32(0)
    of_two = powers.view(np.float32)
    for i in range(out.size):
        out[i] *= of_two[i]


@njit(inline="always")
def _fill_each(similarities, mask, temperature, out):  # type: ignore[no-untyped-def]
    """`fill_terms` in which each sum has its own factor, so that its largest term is 1."""
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


@njit(inline="always")
def _hide(mask, terms):  # type: ignore[no-untyped-def]
    """Set the terms, float32 (2, m, m), of pairs that do not count to 0."""
    for way in range(2):
        for u in range(len(mask)):
            for i in range(len(mask)):
                if mask[u, i] != COUNTED:
                    terms[way, u, i] = np.float32(0)
