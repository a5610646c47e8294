"""What the rows of a block are to each other: whether they count, and should be kept apart."""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.refinement.blocks import BROKEN, COUNTED, SAME_ROW, SIMILAR, UNCOUNTED
from batchplan.refinement.objective import Int64Array, Objective

Mask = NDArray[np.uint8]


def rows_at(rows: torch.Tensor, members: Int64Array) -> torch.Tensor:
    """float32 (batches, m, d): the rows (batches, m) of batches."""
    return rows[torch.from_numpy(members.ravel())].view(*members.shape, rows.shape[1])


def masks_of(objective: Objective, members: Int64Array) -> Mask:
    """uint8 (batches, m, m): what the rows (batches, m) of batches are to each other."""
    if objective.guard.ceilings is None and not objective.window.shape[1]:
        known = torch.zeros((*members.shape, members.shape[1]))  # nothing depends on them
    else:
        x, y = (rows_at(part, members) for part in (objective.x, objective.y))
        known = torch.bmm(x, y.mT)
    return masks_from(objective, members, known)


def masks_from(objective: Objective, members: Int64Array, similarities: torch.Tensor) -> Mask:
    """`masks_of` where the similarities, float32 (batches, m, m), are known."""
    masks = np.empty(similarities.shape, np.uint8)
    ceilings = objective.guard.ceilings
    if ceilings is None:
        ceilings = np.empty(0, np.float32)
    codes = objective.guard.codes()
    _mask_all(similarities.numpy(), members, ceilings, codes, objective.window, masks)
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
    for a in range(m):
        i = rows[a]
        out[a, a] = COUNTED
        for b in range(a + 1, m):
            j = rows[b]
            forth, back = similarities[a, b], similarities[b, a]
            relation = COUNTED
            if window.shape[1]:
                inside = window[0, i] <= forth < window[1, i]
                if not (inside or window[0, j] <= back < window[1, j]):
                    relation = UNCOUNTED
            if ceilings.size and max(forth, back) >= min(ceilings[i], ceilings[j]):
                relation = SIMILAR
            for c in range(codes.shape[0]):
                if codes[c, i] >= 0 and codes[c, i] == codes[c, j]:
                    relation = BROKEN
            if i == j:
                relation = SAME_ROW
            out[a, b] = out[b, a] = relation
