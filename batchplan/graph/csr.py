"""Compressed sparse row arithmetic: A united with its transpose, in linear time.

The CPU kernels are numba, the others plain torch; both give the same arrays. Every kernel assumes
a valid CSR pattern: sorted and unique within a row.
"""

from __future__ import annotations

import numpy as np
import torch

from batchplan.kernels import get_num_threads, njit, prange


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
    values = np.empty(0, np.float32) if weights is None else weights.numpy()
    a = (indptr.numpy(), indices.numpy(), values)
    at = _transpose(a[0], a[1], values, min(get_num_threads(), 8))
    union_ptr = _count_union(a[0], a[1], at[0], at[1])
    union = _fill_union(*a, *at, union_ptr)
    result = [torch.from_numpy(part) for part in (union_ptr, *union)]
    return result[0], result[1], None if weights is None else result[2]


@njit(parallel=True)
def _transpose(indptr, indices, weights, strips):  # type: ignore[no-untyped-def]
    n = indptr.size - 1
    t_ptr = np.zeros(n + 1, np.int64)
    for e in range(indices.size):
        t_ptr[indices[e] + 1] += 1
    for i in range(n):
        t_ptr[i + 1] += t_ptr[i]
    fill = t_ptr[:-1].copy()
    t_indices = np.empty_like(indices)
    t_weights = np.empty_like(weights)
    # Each strip owns a range of columns and reads all edges: the reads stream, and it is the
    # scattered writes that cost. Rows come in order, so every transposed row ends up sorted.
    for strip in prange(strips):
        lo, hi = strip * n // strips, (strip + 1) * n // strips
        for i in range(n):
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                if lo <= j < hi:
                    t_indices[fill[j]] = i
                    if weights.size:
                        t_weights[fill[j]] = weights[e]
                    fill[j] += 1
    return t_ptr, t_indices, t_weights


@njit(parallel=True)
def _count_union(a_ptr, a_indices, b_ptr, b_indices):  # type: ignore[no-untyped-def]
    n = a_ptr.size - 1
    union_ptr = np.zeros(n + 1, np.int64)
    for i in prange(n):
        p, q, both = a_ptr[i], b_ptr[i], 0
        while p < a_ptr[i + 1] and q < b_ptr[i + 1]:
            left, right = a_indices[p], b_indices[q]
            both += left == right
            p += left <= right
            q += right <= left
        union_ptr[i + 1] = a_ptr[i + 1] - a_ptr[i] + b_ptr[i + 1] - b_ptr[i] - both
    for i in range(n):
        union_ptr[i + 1] += union_ptr[i]
    return union_ptr


@njit(parallel=True)
def _fill_union(  # type: ignore[no-untyped-def]
    a_ptr, a_indices, a_weights, b_ptr, b_indices, b_weights, union_ptr
):
    n = a_ptr.size - 1
    indices = np.empty(union_ptr[n], a_indices.dtype)
    weights = np.empty(union_ptr[n] if a_weights.size else 0, np.float32)
    for i in prange(n):
        p, q = a_ptr[i], b_ptr[i]
        for out in range(union_ptr[i], union_ptr[i + 1]):
            from_a = p < a_ptr[i + 1] and (q >= b_ptr[i + 1] or a_indices[p] <= b_indices[q])
            from_b = q < b_ptr[i + 1] and (p >= a_ptr[i + 1] or b_indices[q] <= a_indices[p])
            indices[out] = a_indices[p] if from_a else b_indices[q]
            if a_weights.size:
                weight = a_weights[p] if from_a else b_weights[q]
                if from_b and b_weights[q] > weight:
                    weight = b_weights[q]
                weights[out] = weight
            p += from_a
            q += from_b
    return indices, weights


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
