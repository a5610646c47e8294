"""Compressed sparse rows: unites a matrix with its transpose.

SciPy does this on the CPU and torch on other devices, with the same results. Indices are sorted and
unique within a row.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

_UNITED = 1 << 25  # entries that a device unites at a time, some 60 bytes each


def square(indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[Any]) -> csr_array:
    """A square SciPy matrix of these arrays; copies ``indptr`` only."""
    if len(indices) <= np.iinfo(indices.dtype).max:
        indptr = indptr.astype(indices.dtype)  # SciPy would widen the indices to its type
    size = len(indptr) - 1
    return csr_array((values, indices, indptr), shape=(size, size))


def union_with_transpose(
    indptr: torch.Tensor, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries that are in A or A^T.

    Args:
        indptr: int64 (N + 1,).
        indices: int32 or int64 (E,), sorted and unique within a row.

    Returns:
        (indptr, indices) of the union, at most 2 E entries.
    """
    if indices.device.type != "cpu":
        return _union_torch(indptr, indices)
    matrix = square(indptr.numpy(), indices.numpy(), np.ones(len(indices), np.uint8))
    union = matrix.maximum(matrix.T.tocsr())
    return (
        torch.from_numpy(union.indptr.astype(np.int64, copy=False)),
        torch.from_numpy(union.indices.astype(indices.numpy().dtype, copy=False)),
    )


def row_of_entry(indptr: torch.Tensor) -> torch.Tensor:
    """int64 (E,): the row that each entry belongs to."""
    rows = torch.arange(indptr.numel() - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff())


def _union_torch(
    indptr: torch.Tensor, indices: torch.Tensor, at_once: int = _UNITED
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unite rows of about ``at_once`` entries at a time. So a device needs only a few gigabytes
    more than A and the union, which has at most 2 E entries."""
    n, size = indptr.numel() - 1, indices.numel()
    sizes = indptr.diff()
    for part in torch.split(indices, at_once):
        sizes += torch.bincount(part, minlength=n)
    ends = sizes.cumsum(0)
    columns = indices.new_empty(2 * size)
    counts = torch.zeros_like(sizes)
    start = filled = 0
    while start < n:
        limit = at_once + (int(ends[start - 1]) if start else 0)
        stop = max(start + 1, int(torch.searchsorted(ends, limit, right=True)))
        rows, others = _both_ways(indptr, indices, start, stop, at_once)
        keys = torch.unique((rows - start) * n + others)
        columns[filled : filled + keys.numel()] = keys % n
        counts[start:stop] = torch.bincount(keys // n, minlength=stop - start)
        filled += keys.numel()
        start = stop
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns[:filled]


def _both_ways(
    indptr: torch.Tensor, indices: torch.Tensor, start: int, stop: int, at_once: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """int64: the row and the column of each entry of rows ``start`` to ``stop`` of A and of A^T."""
    rows = [start + row_of_entry(indptr[start : stop + 1])]
    columns = [indices[int(indptr[start]) : int(indptr[stop])].long()]
    for first in range(0, indices.numel(), at_once):
        part = indices[first : first + at_once]
        entry = first + ((part >= start) & (part < stop)).nonzero()[:, 0]
        rows.append(indices[entry].long())
        columns.append(torch.searchsorted(indptr, entry, right=True) - 1)
    return torch.cat(rows), torch.cat(columns)
