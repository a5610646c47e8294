"""The similarities of the rows of a few blocks and their terms, computed on the rows' device.

Terms of a block are divided by one factor, so that both directions share their exponentials. If
similarities over the temperature spread too far for that, each sum has its own factor.
"""

from math import log

import numpy as np
import torch

from batchplan.kernels import njit
from batchplan.refinement.blocks import COUNTED
from batchplan.refinement.objective import FADING, Int64Array, Objective, Sides

# Range of the logits that may share a factor: e^60 times a few thousand terms is well within
# float32, and so is e^-20 times the smallest term of a row with itself.
_SPREAD = 120.0


def similarities_of(sides: Sides, members: Int64Array) -> torch.Tensor:
    """float32 (blocks, m, m): x_i . y_j of the rows (blocks, m) of each block."""
    rows = torch.from_numpy(members.ravel()).to(sides[0].device)
    shape = (*members.shape, sides[0].shape[1])
    x, y = (side.index_select(0, rows).view(shape) for side in sides)
    return torch.bmm(x, y.mT)


def discount(
    similarities: torch.Tensor, judged: torch.Tensor, objective: Objective, members: Int64Array
) -> None:
    """Lower similarities, (..., m, m), in place, so that their exponentials are what they count
    for: all by a share of those of the reference, ``judged``, and those of pairs that met among the
    rows (..., m)."""
    if objective.learnability:
        similarities.sub_(judged, alpha=objective.learnability)
    step = objective.temperature * log(FADING)
    for numbers in objective.met:
        own = torch.from_numpy(numbers[members])
        together = own.unsqueeze(-1) == own.unsqueeze(-2)
        together.diagonal(dim1=-2, dim2=-1).fill_(False)
        similarities.add_(together.to(similarities.device), alpha=step)


def terms_of(similarities: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(s / tau) over a factor of each block: the geometric mean of its largest term and of the
    smallest that a row adds to its own sum.

    Returns:
        float32 (blocks, 2, m, m), the terms of x to y and of y to x; and bool (blocks,), whether
        float32 cannot hold them.
    """
    count, m, _ = similarities.shape
    largest = similarities.amax((1, 2))
    least = similarities.diagonal(dim1=1, dim2=2).amin(1)
    terms = similarities.new_empty((count, 2, m, m))
    centre = largest.lerp(least, 0.5)[:, None, None]
    torch.sub(similarities, centre, out=terms[:, 1]).div_(temperature).exp_()
    terms[:, 0] = terms[:, 1].mT
    return terms, ~((largest - least) / temperature <= _SPREAD)


@njit
def fill_terms(similarities, mask, temperature, out):  # type: ignore[no-untyped-def]
    """The terms of a block whose sums have their own factors: the largest that counts is 1.

    Args:
        similarities: float32 (m, m).
        mask: uint8 (m, m), or (0, 0) if all count.
        temperature: tau.
        out: float32 (2, m, m), filled.
    """
    m = len(similarities)
    tau = np.float32(temperature)
    for way in range(2):
        for i in range(m):
            peak = similarities[i, i]
            for u in range(m):
                s = similarities[u, i] if way else similarities[i, u]
                if not mask.size or mask[u, i] == COUNTED:
                    peak = max(peak, s)
            for u in range(m):
                s = similarities[u, i] if way else similarities[i, u]
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
