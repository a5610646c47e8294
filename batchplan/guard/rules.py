"""The guard for compiled loops: `breaks` returns whether two rows break it."""

from dataclasses import dataclass
from typing import Any

import torch

from batchplan.data import Embeddings
from batchplan.data.rows import both_sides, load_all_rows
from batchplan.guard.apart import Apart, apart
from batchplan.guard.guard import Guard
from batchplan.kernels import exact_dot, njit


@dataclass(frozen=True, eq=False)
class Rules:
    """A guard, and the rows of which it needs products.

    Attributes:
        apart: the arrays of `Guard.apart`.
        ceilings: float32 (N,), or (0,) if no similarity is too high.
        x, y: float32 (N, d), the rows of both sides, to compute s_ji, and with a reference also
            s_ij; (0, 0) if neither is needed.
        referred: whether x and y are rows of a reference, which is used instead of the data to
            decide which rows are too similar.
    """

    apart: tuple[torch.Tensor, ...]
    ceilings: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor
    referred: bool = False

    def compiled(self) -> tuple[Any, ...]:
        """Return the arrays for `breaks`."""
        tensors = (self.ceilings, self.x, self.y)
        apart = Apart(*(part.numpy() for part in self.apart))
        return apart, *(tensor.numpy() for tensor in tensors), self.referred

    def swapped(self) -> "Rules":
        """Return the same rules for pairs of a y and an x."""
        return Rules(self.apart, self.ceilings, self.y, self.x, self.referred)


def bytes_of_rows(guard: Guard | None, embeddings: Embeddings) -> int:
    """Return bytes that `Rules` take for each of the N rows, without the rows of y of the data."""
    if guard is None or guard.ceilings is None:
        return 0
    if guard.reference is not None:
        return 4 * guard.reference.dim * (1 + guard.reference.paired)
    return 4 * embeddings.dim * embeddings.paired  # with one matrix s_ji equals s_ij


def rules_of(
    guard: Guard | None, embeddings: Embeddings, keys: torch.Tensor, normalize: bool
) -> Rules:
    """Make the rules of a guard, or of no guard, on the device of the keys.

    Args:
        guard: the guard of the data; None for no guard.
        embeddings: N pairs of d dimensions.
        keys: float32 (N, d), all rows of y.
        normalize: whether rows have unit length.
    """
    guard = Guard() if guard is None else guard
    device = keys.device
    x = y = torch.empty((0, 0), device=device)
    reference = guard.reference if guard.ceilings is not None else None
    if reference is not None:
        x, y = both_sides(reference, device, normalize)
    elif guard.ceilings is not None and embeddings.paired:
        x, y = load_all_rows(embeddings.x, device, normalize), keys
    *parts, ceilings = (
        torch.from_numpy(part).to(device) for part in (*guard.apart, guard.compiled()[1])
    )
    return Rules(tuple(parts), ceilings, x, y, reference is not None)


@njit
def breaks(i, j, value, rules):  # type: ignore[no-untyped-def]
    """Return whether rows i and j break the guard of `Rules.compiled`.

    ``value`` is s_ij of the data.
    """
    separate, ceilings, x, y, referred = rules
    if apart(i, j, separate):
        return True
    if ceilings.size == 0:
        return False
    lowest = min(ceilings[i], ceilings[j])
    if referred:
        value = exact_dot(x[i], y[j])
    return value >= lowest or (len(x) > 0 and exact_dot(y[i], x[j]) >= lowest)
