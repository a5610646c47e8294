"""Applies a guard to pairs of rows: `breaks` in compiled loops, `Rules.mask` in torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows
from batchplan.guard.guard import Guard
from batchplan.kernels import njit


@dataclass(frozen=True, eq=False)
class Rules:
    """A guard, and the rows from which s_ji is computed.

    Attributes:
        codes: int64 (C, N), `Guard.apart`.
        ceilings: float32 (N,), or (0,) if no similarity is too high.
        x, y: float32 (N, d), the rows of both sides; (0, 0) if s_ji is not needed.
    """

    codes: torch.Tensor
    ceilings: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor

    def compiled(self) -> tuple[Any, ...]:
        """The arrays for `breaks`."""
        return tuple(t.numpy() for t in (self.codes, self.ceilings, self.x, self.y))

    def swapped(self) -> "Rules":
        """The same with the sides in each other's place: for pairs of a y and an x."""
        return Rules(self.codes, self.ceilings, self.y, self.x)

    def mask(self, tile: torch.Tensor, first_row: int, first_column: int) -> None:
        """Set the similarities of pairs that break the guard to -inf, in place.

        Args:
            tile: float32 (R, C), s_ij of rows from ``first_row`` and ``first_column`` on.
        """
        rows = slice(first_row, first_row + tile.shape[0])
        columns = slice(first_column, first_column + tile.shape[1])
        for own in self.codes:
            same = (own[rows, None] == own[columns]) & (own[rows, None] >= 0)
            tile.masked_fill_(same, -torch.inf)
        if self.ceilings.numel():
            lowest = torch.minimum(self.ceilings[rows, None], self.ceilings[columns])
            broken = tile >= lowest
            if len(self.x):
                broken |= self.y[rows] @ self.x[columns].T >= lowest
            tile.masked_fill_(broken, -torch.inf)


def needs_both_ways(guard: Guard | None, embeddings: Embeddings) -> bool:
    """Whether s_ji is needed: with one matrix it equals s_ij."""
    return guard is not None and guard.ceilings is not None and embeddings.paired


def rules_of(
    guard: Guard | None, embeddings: Embeddings, keys: torch.Tensor, normalize: bool
) -> Rules:
    """The rules of a guard, or of no guard, on the device of the keys.

    Args:
        guard: of the data.
        embeddings: N pairs of d dimensions; the rows of x take 4 N d bytes if `needs_both_ways`.
        keys: float32 (N, d), all rows of y.
        normalize: whether these have unit length.
    """
    guard = Guard() if guard is None else guard
    device = keys.device
    x = y = torch.empty((0, 0), device=device)
    if needs_both_ways(guard, embeddings):
        x, y = load_all_rows(embeddings.x, device, normalize), keys
    ceilings = np.empty(0, np.float32) if guard.ceilings is None else guard.ceilings
    codes = torch.from_numpy(guard.codes()).to(device)
    return Rules(codes, torch.from_numpy(ceilings).to(device), x, y)


@njit(fastmath={"reassoc", "contract"})
def dot(a, b):  # type: ignore[no-untyped-def]
    """float32: the product of two float32 rows; the order of the sum depends on the machine."""
    total = np.float32(0)
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@njit
def apart(i, j, rules):  # type: ignore[no-untyped-def]
    """Whether rows i and j are kept apart however similar they are."""
    for own in rules[0]:  # noqa: SIM110  (numba knows no generator expressions)
        if own[i] >= 0 and own[i] == own[j]:
            return True
    return False


@njit
def breaks(i, j, value, rules):  # type: ignore[no-untyped-def]
    """Whether rows i and j, with s_ij = ``value`` break the guard of `Rules.compiled`."""
    if apart(i, j, rules):
        return True
    _, ceilings, x, y = rules
    if ceilings.size == 0:
        return False
    lowest = min(ceilings[i], ceilings[j])
    return value >= lowest or (len(x) > 0 and dot(y[i], x[j]) >= lowest)
