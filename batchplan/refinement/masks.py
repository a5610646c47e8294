"""What the rows of a block are to each other: whether they count, and should be kept apart."""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.refinement.blocks import BROKEN, COUNTED, SAME_ROW, SIMILAR, UNCOUNTED
from batchplan.refinement.objective import Int64Array, Objective
from batchplan.refinement.terms import similarities_of

Mask = NDArray[np.uint8]

_HIGH, _INSIDE = 1, 2  # bits: too similar, and inside the window of either row


def masks_of(objective: Objective, members: Int64Array) -> Mask:
    """uint8 (blocks, m, m): what the rows (blocks, m) of each block are to each other."""
    if objective.guard.ceilings is None and not objective.window.shape[1]:
        known = torch.zeros((*members.shape, members.shape[1]))  # nothing depends on them
    else:
        known = similarities_of(objective, members).cpu()
    return masks_from(objective, members, known)


def masks_from(objective: Objective, members: Int64Array, similarities: torch.Tensor) -> Mask:
    """`masks_of` where the similarities, float32 (blocks, m, m), are known."""
    masks = np.empty(similarities.shape, np.uint8)
    ceilings = objective.guard.ceilings
    if ceilings is None:
        ceilings = np.empty(0, np.float32)
    _mask_all(similarities.numpy(), members, ceilings, objective.codes, objective.window, masks)
    return masks


@njit
def _mask_all(similarities, members, ceilings, codes, window, masks):  # type: ignore[no-untyped-def]
    for pair in range(len(members)):
        make_mask(similarities[pair], members[pair], ceilings, codes, window, masks[pair])


@njit
def make_mask(similarities, rows, ceilings, codes, window, out):  # type: ignore[no-untyped-def]
    """What the rows of a block are to each other.

    Args:
        similarities: float32 (m, m), s_ij.
        rows: int64 (m,), which rows of the data they are.
        ceilings: float32 (N,) of the guard, or (0,).
        codes: int64 (C, N) of the guard.
        window: float32 (2, N): a pair counts where s_ij lies from the first up to, but not at, the
            second, for either of its rows; (2, 0) where all count.
        out: uint8 (m, m), filled.
    """
    m = rows.size
    bits = np.zeros((m, m), np.uint8)
    if ceilings.size:
        _mark_similar(similarities, ceilings[rows], bits)
    if window.shape[1]:
        _mark_inside(similarities, window[0][rows], window[1][rows], bits)
    _unite(bits)
    other = UNCOUNTED if window.shape[1] else COUNTED
    for a in range(m):
        for b in range(m):
            relation = COUNTED if bits[a, b] & _INSIDE else other
            out[a, b] = SIMILAR if bits[a, b] & _HIGH else relation
    for c in range(codes.shape[0]):
        _mark_equal(codes[c][rows], BROKEN, out)
    _mark_equal(rows, SAME_ROW, out)
    for a in range(m):
        out[a, a] = COUNTED


# Every loop over b is free of branches, so that it compiles to vectors.


@njit
def _mark_similar(similarities, ceilings, bits):  # type: ignore[no-untyped-def]
    for a in range(ceilings.size):
        for b in range(ceilings.size):
            high = similarities[a, b] >= min(ceilings[a], ceilings[b])
            bits[a, b] |= _HIGH if high else 0


@njit
def _mark_inside(similarities, least, most, bits):  # type: ignore[no-untyped-def]
    for a in range(least.size):
        for b in range(least.size):
            inside = (least[a] <= similarities[a, b]) & (similarities[a, b] < most[a])
            bits[a, b] |= _INSIDE if inside else 0


@njit
def _unite(bits):  # type: ignore[no-untyped-def]
    """What holds of a and b holds of b and a."""
    for a in range(len(bits)):
        for b in range(a):
            both = bits[a, b] | bits[b, a]
            bits[a, b] = bits[b, a] = both


@njit
def _mark_equal(codes, relation, out):  # type: ignore[no-untyped-def]
    for a in range(codes.size):
        if codes[a] < 0:
            continue
        for b in range(codes.size):
            out[a, b] = relation if codes[b] == codes[a] else out[a, b]
