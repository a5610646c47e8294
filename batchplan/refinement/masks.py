"""The relations of the rows of a block: which pairs count, and which to keep apart."""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.refinement.blocks import BROKEN, COUNTED, SAME_ROW, SIMILAR, UNCOUNTED
from batchplan.refinement.objective import Int64Array, Objective
from batchplan.refinement.terms import products, similarities_of

Mask = NDArray[np.uint8]

_HIGH, _INSIDE = 1, 2  # bits: too similar, and inside the window of either row


def masks_of(objective: Objective, members: Int64Array) -> Mask:
    """uint8 (blocks, m, m): the relations of the rows (blocks, m) of each block."""
    limited, reference = objective.guard.ceilings is not None, objective.reference
    similarities = torch.zeros((*members.shape, members.shape[1]))  # where nothing depends on them
    if (limited and reference is None) or objective.window.shape[1]:
        similarities = similarities_of(objective, members)[1].cpu()
    judged = similarities
    if limited and reference is not None:
        judged = products(reference, members).cpu()
    return masks_from(objective, members, similarities, judged)


def masks_from(
    objective: Objective, members: Int64Array, similarities: torch.Tensor, judged: torch.Tensor
) -> Mask:
    """`masks_of` from known similarities, float32 (blocks, m, m), with mined negatives those of the
    most similar documents; and those that the guard judges by."""
    masks = np.empty(similarities.shape, np.uint8)
    ceilings = objective.guard.ceilings
    if ceilings is None:
        ceilings = np.empty(0, np.float32)
    guard = judged.numpy(), ceilings, objective.codes
    _mask_all(similarities.numpy(), members, guard, objective.window, masks)
    if objective.documents is not None and ceilings.size:
        masks[_answers(objective.documents, members) & (masks < BROKEN)] = BROKEN
    return masks


def _answers(documents: Int64Array, members: Int64Array) -> NDArray[np.bool_]:
    """bool (blocks, m, m): whether a mined negative of one row is the positive of another."""
    positive, *negatives = documents[:, members]
    found = np.zeros((*members.shape, members.shape[1]), np.bool_)
    for own in negatives:
        found |= positive[:, :, None] == own[:, None, :]
    found[:, np.eye(members.shape[1], dtype=np.bool_)] = False
    return found | found.transpose(0, 2, 1)


@njit
def _mask_all(similarities, members, guard, window, masks):  # type: ignore[no-untyped-def]
    judged, ceilings, codes = guard
    for pair in range(len(members)):
        own = judged[pair], ceilings, codes
        make_mask(similarities[pair], members[pair], own, window, masks[pair])


@njit
def make_mask(similarities, rows, guard, window, out):  # type: ignore[no-untyped-def]
    """The relations of the rows of a block.

    Args:
        similarities: float32 (m, m), s_ij.
        rows: int64 (m,), rows of the data.
        guard: float32 (m, m), the similarities that it judges by; float32 (N,) ceilings, or (0,);
            and int64 (C, N) codes.
        window: float32 (2, N): a pair counts if window[0] <= s_ij < window[1] for either of its
            rows; (2, 0) if all count.
        out: uint8 (m, m), filled.
    """
    m = rows.size
    judged, ceilings, codes = guard
    bits = np.zeros((m, m), np.uint8)
    if ceilings.size:
        _mark_similar(judged, ceilings[rows], bits)
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


# The loops over b have no branches, so they compile to vectors.


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
    """Make the bits symmetric: set where either order of a pair has them."""
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
