"""Compressed sparse rows. Indices are sorted and unique within a row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def square(indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[Any]) -> csr_array:
    """A square SciPy matrix of these arrays; copies ``indptr`` only."""
    if len(indices) <= np.iinfo(indices.dtype).max:
        indptr = indptr.astype(indices.dtype)  # SciPy would widen the indices to its type
    size = len(indptr) - 1
    return csr_array((values, indices, indptr), shape=(size, size))


def union_with_transpose(
    indptr: NDArray[np.int64], indices: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The entries that are in A or A^T.

    Args:
        indptr: int64 (N + 1,).
        indices: int32 or int64 (E,), sorted and unique within a row.

    Returns:
        (indptr, indices) of the union, at most 2 E entries.
    """
    matrix = square(indptr, indices, np.ones(len(indices), np.uint8))
    union = matrix.maximum(matrix.T.tocsr())
    return union.indptr.astype(np.int64, copy=False), union.indices.astype(
        indices.dtype, copy=False
    )
