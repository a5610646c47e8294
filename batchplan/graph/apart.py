"""A guard at work: `breaks` is what compiled loops ask of a pair, `Rules.mask` what torch does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.graph.csr import row_of_entry
from batchplan.graph.guard import Guard
from batchplan.graph.screen import load_all_rows
from batchplan.graph.threads import in_order
from batchplan.kernels import njit

_ROWS = 1024  # whose edges a thread takes at once
_EDGES = 1 << 18  # on other devices: a gigabyte or so of gathered rows


@dataclass(frozen=True, eq=False)
class Rules:
    """A guard, and the rows that tell s_ji where s_ij is known.

    Attributes:
        codes: int64 (C, N), of which rows are kept apart.
        ceilings: float32 (N,), or (0,) where no similarity is too high.
        x, y: float32 (N, d), the rows of both sides; (0, 0) where s_ji need not be known.
    """

    codes: torch.Tensor
    ceilings: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor

    def compiled(self) -> tuple[Any, ...]:
        """What `breaks` takes."""
        return tuple(part.numpy() for part in (self.codes, self.ceilings, self.x, self.y))

    def mask(self, tile: torch.Tensor, first_row: int, first_column: int) -> None:
        """Make the similarities of pairs that break the guard -inf, in place.

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
    """Whether s_ji must be known too: not where one matrix makes it s_ij."""
    return guard is not None and guard.ceilings is not None and embeddings.paired


def rules_of(
    guard: Guard | None, embeddings: Embeddings, keys: torch.Tensor, normalize: bool
) -> Rules:
    """The rules of a guard, or of none, on the device of the keys.

    Args:
        guard: of the data.
        embeddings: N pairs of d dimensions; `needs_both_ways` tells whether the rows of x are
            loaded, as 4 N d bytes.
        keys: float32 (N, d), all rows of y.
        normalize: whether those are of unit length.
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
    """float32: the product of two float32 rows, summed in the order that suits the machine."""
    total = np.float32(0)
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@njit
def breaks(i, j, value, rules):  # type: ignore[no-untyped-def]
    """Whether rows i and j, s_ij being ``value``, break the guard of ``Rules.compiled``."""
    codes, ceilings, x, y = rules
    for own in codes:
        if own[i] >= 0 and own[i] == own[j]:
            return True
    if ceilings.size == 0:
        return False
    lowest = min(ceilings[i], ceilings[j])
    return value >= lowest or (len(x) > 0 and dot(y[i], x[j]) >= lowest)


def unbroken_edges(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    rules: Rules,
    advance: Callable[[int], None],
) -> torch.Tensor:
    """bool (E,): the edges of a graph whose two rows do not break the guard.

    Args:
        indptr: int64 (N + 1,).
        indices: int32 or int64 (E,).
        weights: float32 (E,), s_ij; None only where the rules have no ceilings.
        rules: on the same device.
        advance: told of rows done.
    """
    find = _unbroken_cpu if indices.device.type == "cpu" else _unbroken_torch
    return find(indptr, indices, weights, rules, advance)


def _unbroken_cpu(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    rules: Rules,
    advance: Callable[[int], None],
) -> torch.Tensor:
    n = indptr.numel() - 1
    keep = torch.empty(indices.numel(), dtype=torch.bool)
    values = np.empty(0, np.float32) if weights is None else weights.numpy()
    edges = (indptr.numpy(), indices.numpy(), values, rules.compiled(), keep.numpy())

    def work(start: int) -> int:
        stop = min(start + _ROWS, n)
        _keep_unbroken(start, stop, *edges)
        return stop - start

    for done in in_order(work, range(0, n, _ROWS)):
        advance(done)
    return keep


@njit
def _keep_unbroken(start, stop, indptr, indices, weights, rules, keep):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            value = weights[e] if weights.size else np.float32(0)
            keep[e] = not breaks(i, indices[e], value, rules)


def _unbroken_torch(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    rules: Rules,
    advance: Callable[[int], None],
) -> torch.Tensor:
    keep = torch.ones(indices.numel(), dtype=torch.bool, device=indices.device)
    rows = row_of_entry(indptr)
    for start in range(0, indices.numel(), _EDGES):
        part = slice(start, start + _EDGES)
        i, j = rows[part], indices[part].long()
        for own in rules.codes:
            keep[part] &= (own[i] != own[j]) | (own[i] < 0)
        if weights is not None and rules.ceilings.numel():
            highest = weights[part]
            if len(rules.x):
                highest = torch.maximum(highest, (rules.y[i] * rules.x[j]).sum(1))
            keep[part] &= highest < torch.minimum(rules.ceilings[i], rules.ceilings[j])
    advance(indptr.numel() - 1)
    return keep
