"""Compressed sparse rows: a matrix united with its transpose, and edges counted.

SciPy does it on the CPU, plain torch elsewhere; both give the same arrays. Indices are sorted and
unique within a row.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from batchplan.kernels import njit, prange

_SIGN = np.uint32(1 << 31)


def square(indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[Any]) -> csr_array:
    """A square SciPy matrix of these arrays; copies ``indptr`` only."""
    if len(indices) <= np.iinfo(indices.dtype).max:
        indptr = indptr.astype(indices.dtype)  # SciPy would widen the indices to its type
    size = len(indptr) - 1
    return csr_array((values, indices, indptr), shape=(size, size))


def union_with_transpose(
    indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """A or A^T entry by entry; where both have an entry, the larger weight.

    Args:
        indptr: int64 (N + 1,).
        indices: int32 or int64 (E,), sorted and unique within a row.
        weights: float32 (E,), or None for a pattern without weights.

    Returns:
        (indptr, indices, weights) of the union, at most 2 E entries.
    """
    if indices.device.type != "cpu":
        return _union_torch(indptr, indices, weights)
    values = np.ones(len(indices), np.uint8) if weights is None else _as_keys(weights.numpy())
    matrix = square(indptr.numpy(), indices.numpy(), values)
    union = matrix.maximum(matrix.T.tocsr())
    return (
        torch.from_numpy(union.indptr.astype(np.int64, copy=False)),
        torch.from_numpy(union.indices.astype(indices.numpy().dtype, copy=False)),
        None if weights is None else torch.from_numpy(_from_keys(union.data)),
    )


def _as_keys(weights: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Integers in the order of the weights, all above 0: that is what SciPy takes no entry for."""
    bits = weights.view(np.uint32)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_keys(keys: NDArray[np.uint32]) -> NDArray[np.float32]:
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float32)


def count_within(indptr: torch.Tensor, indices: torch.Tensor, labels: torch.Tensor) -> int:
    """Entries (i, j) whose labels, int64 (N,), are equal and not negative."""
    if indices.device.type == "cpu":
        return int(_count_within(indptr.numpy(), indices.numpy(), labels.numpy()))
    return _count_within_torch(indptr, indices, labels, rows_at_once=1 << 16)


@njit(parallel=True)
def _count_within(indptr, indices, labels):  # type: ignore[no-untyped-def]
    same = np.zeros(indptr.size - 1, np.int64)
    for i in prange(indptr.size - 1):
        if labels[i] >= 0:
            for e in range(indptr[i], indptr[i + 1]):
                same[i] += labels[indices[e]] == labels[i]
    return same.sum()


def _count_within_torch(
    indptr: torch.Tensor, indices: torch.Tensor, labels: torch.Tensor, rows_at_once: int
) -> int:
    same = 0
    for start in range(0, indptr.numel() - 1, rows_at_once):
        bounds = indptr[start : start + rows_at_once + 1]
        source = torch.repeat_interleave(labels[start : start + rows_at_once], bounds.diff())
        target = labels[indices[int(bounds[0]) : int(bounds[-1])].long()]
        same += int(((source == target) & (source >= 0)).sum())
    return same


def row_of_entry(indptr: torch.Tensor) -> torch.Tensor:
    """int64 (E,): the row that each entry belongs to."""
    rows = torch.arange(indptr.numel() - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff())


def _union_torch(
    indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    n = indptr.numel() - 1
    rows = row_of_entry(indptr)
    keys = torch.cat([rows * n + indices, indices.long() * n + rows])
    del rows
    if weights is None:
        keys = torch.unique(keys)
        merged = None
    else:
        keys, inverse = torch.unique(keys, return_inverse=True)
        merged = torch.full((keys.numel(),), -torch.inf, device=keys.device)
        merged.scatter_reduce_(0, inverse, torch.cat([weights, weights]), "amax")
    bounds = torch.arange(n + 1, device=keys.device) * n
    return torch.searchsorted(keys, bounds), (keys % n).to(indices.dtype), merged
