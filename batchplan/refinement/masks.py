"""The relations of the rows of a block: which pairs count, and which must be separated."""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.guard.apart import answers
from batchplan.kernels import njit
from batchplan.refinement.blocks import BROKEN, COUNTED, SAME_ROW, SIMILAR
from batchplan.refinement.objective import Objective
from batchplan.refinement.terms import products, similarities_of
from batchplan.typing import Int64Array

Mask = NDArray[np.uint8]


def masks_of(objective: Objective, members: Int64Array) -> Mask:
    """uint8 (blocks, m, m): the relations of the rows (blocks, m) of each block."""
    judged = torch.zeros((*members.shape, members.shape[1]))  # without a limit, only a shape
    if objective.guard.ceilings is not None:
        if objective.reference is None:
            judged = similarities_of(objective, members)[1].cpu()
        else:
            judged = products(objective.reference, members).cpu()
    return masks_from(objective, members, judged)


def masks_from(objective: Objective, members: Int64Array, judged: torch.Tensor) -> Mask:
    """`masks_of` from the similarities by which the guard judges, float32 (blocks, m, m).

    With mined negatives, they are the similarities of the most similar documents.
    """
    masks = np.empty(judged.shape, np.uint8)
    ceilings = objective.guard.ceilings
    if ceilings is None:
        ceilings = np.empty(0, np.float32)
    _mask_all(judged.numpy(), members, ceilings, objective.guard.apart, masks)
    return masks


@njit
def _mask_all(judged, members, ceilings, separate, masks):  # type: ignore[no-untyped-def]
    for block in range(len(members)):
        make_mask(judged[block], members[block], ceilings, separate, masks[block])


@njit(inline="always")
def make_mask(judged, rows, ceilings, separate, out):  # type: ignore[no-untyped-def]
    """The relations of the rows of a block.

    Args:
        judged: float32 (m, m), the similarities by which the guard judges.
        rows: int64 (m,), rows of the data.
        ceilings: float32 (N,), of the guard; (0,) without a limit.
        separate: `Guard.apart`.
        out: uint8 (m, m), filled.
    """
    out[:] = COUNTED
    if ceilings.size:
        _mark_similar(judged, ceilings[rows], out)
    for own in separate.codes:
        _mark_equal(own[rows], BROKEN, out)
    if separate.spans.size:
        _mark_answers(rows, separate, out)
    _mark_equal(rows, SAME_ROW, out)
    for a in range(rows.size):
        out[a, a] = COUNTED


@njit(inline="always")
def _mark_similar(judged, ceilings, out):  # type: ignore[no-untyped-def]
    # The first loop over b has no branches, so that it is vectorised.
    for a in range(ceilings.size):
        for b in range(ceilings.size):
            high = judged[a, b] >= min(ceilings[a], ceilings[b])
            out[a, b] = SIMILAR if high else COUNTED
    for a in range(ceilings.size):
        for b in range(a):
            out[a, b] = out[b, a] = max(out[a, b], out[b, a])


@njit
def _mark_equal(codes, relation, out):  # type: ignore[no-untyped-def]
    for a in range(codes.size):
        if codes[a] < 0:
            continue
        for b in range(codes.size):
            out[a, b] = relation if codes[b] == codes[a] else out[a, b]


@njit(inline="always")
def _mark_answers(rows, separate, out):  # type: ignore[no-untyped-def]
    for a in range(rows.size):
        if separate.spans[rows[a], 0] == separate.spans[rows[a], 1]:
            continue
        for b in range(rows.size):
            if answers(rows[a], rows[b], separate):
                out[a, b] = out[b, a] = BROKEN
