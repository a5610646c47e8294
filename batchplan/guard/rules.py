"""The guard for compiled loops: `breaks` returns whether two rows break it."""

from dataclasses import dataclass
from typing import Any

import torch

from batchplan.data import Embeddings
from batchplan.data.rows import both_sides, load_all_rows
from batchplan.guard.guard import Guard
from batchplan.kernels import exact_dot, njit


@dataclass(frozen=True, eq=False)
class Rules:
    """A guard, and the rows of which it needs products.

    Attributes:
        codes: int64 (C, N), `Guard.apart`.
        ceilings: float32 (N,), or (0,) if no similarity is too high.
        x, y: float32 (N, d), the rows of both sides, to compute s_ji, and with a reference also
            s_ij; (0, 0) if neither is needed.
        referred: whether x and y are rows of a reference, which is used instead of the data to
            decide which rows are too similar.
    """

    codes: torch.Tensor
    ceilings: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor
    referred: bool = False

    def compiled(self) -> tuple[Any, ...]:
        """Return the arrays for `breaks`."""
        tensors = (self.codes, self.ceilings, self.x, self.y)
        return *(tensor.numpy() for tensor in tensors), self.referred

    def swapped(self) -> "Rules":
        """Return the same rules for pairs of a y and an x."""
        return Rules(self.codes, self.ceilings, self.y, self.x, self.referred)


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
    codes, ceilings = (torch.from_numpy(part).to(device) for part in guard.compiled())
    return Rules(codes, ceilings, x, y, reference is not None)


@njit
def apart(i, j, codes):  # type: ignore[no-untyped-def]
    """Return whether rows i and j have a code in common, in codes (C, N), so that they break the
    guard."""
    for own in codes:  # noqa: SIM110  (numba has no generator expressions)
        if own[i] >= 0 and own[i] == own[j]:
            return True
    return False


@njit
def breaks(i, j, value, rules):  # type: ignore[no-untyped-def]
    """Return whether rows i and j break the guard of `Rules.compiled`.

    ``value`` is s_ij of the data.
    """
    codes, ceilings, x, y, referred = rules
    if apart(i, j, codes):
        return True
    if ceilings.size == 0:
        return False
    lowest = min(ceilings[i], ceilings[j])
    if referred:
        value = exact_dot(x[i], y[j])
    return value >= lowest or (len(x) > 0 and exact_dot(y[i], x[j]) >= lowest)
