"""The similarities of the rows of a few blocks and their terms, computed on the rows' device.

Terms of a block are divided by one factor, so that both directions share their exponentials. If
similarities over the temperature spread too far for that, each sum has its own factor.
"""

import numpy as np
import torch

from batchplan.kernels import njit
from batchplan.refinement.blocks import COUNTED
from batchplan.refinement.listed import listed_similarities
from batchplan.refinement.objective import Objective, Sides
from batchplan.typing import Int64Array

# Range of the logits that may share a factor: e^60 times a few thousand terms is well within
# float32, and so is e^-20 times the smallest term of a row with itself.
_SPREAD = 120.0


def similarities_of(objective: Objective, members: Int64Array) -> tuple[torch.Tensor, torch.Tensor]:
    """The similarities of the rows (blocks, m) of each block.

    Returns:
        float32 (blocks, ways, m, m), s_ij: one way serves both directions of pairs; with mined
        negatives the first is x to all documents, the last x to y; of lists, see
        `listed_similarities`. And float32 (blocks, m, m), the
        largest product of each anchor with a document of another row.
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


def products(sides: Sides, members: Int64Array) -> torch.Tensor:
    """float32 (blocks, m, m): x_i . y_j of the rows (blocks, m) of each block."""
    rows = torch.from_numpy(members.ravel()).to(sides[0].device)
    shape = (*members.shape, sides[0].shape[1])
    x, y = (side.index_select(0, rows).view(shape) for side in sides)
    return torch.bmm(x, y.mT)


def terms_of(similarities: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(s / tau) over a factor of each block: the geometric mean of its largest term and of the
    smallest that a row adds to its own sum.

    Returns:
        float32 (blocks, 2, m, m), the terms of x to y and of y to x; and bool (blocks,), whether
        float32 cannot hold them.
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
    """The terms of a block whose sums have their own factors: the largest that counts is 1.

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
