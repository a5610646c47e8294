"""The edges of a graph that a guard lets be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from batchplan.graph.csr import row_of_entry
from batchplan.guard.rules import Rules, breaks
from batchplan.kernels import njit
from batchplan.threads import in_blocks

_ROWS = 1024  # whose edges a thread takes at once
_EDGES = 1 << 18  # on other devices: a gigabyte or so of gathered rows


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

    in_blocks(lambda start, stop: _keep_unbroken(start, stop, *edges), n, _ROWS, advance)
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
