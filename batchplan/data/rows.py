"""Rows of a matrix as float32 tensors."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data.embeddings import Embeddings
from batchplan.data.matrix import RowMatrix

_ROWS_AT_ONCE = 4096  # keeps temporaries within a few megabytes


def load_rows(
    matrix: RowMatrix, start: int, stop: int, device: torch.device, normalize: bool
) -> torch.Tensor:
    """float32 (stop - start, d) rows on ``device``, of unit length if ``normalize``."""
    rows = np.array(matrix.rows(start, stop))  # a copy: the rows may be a read-only memory map
    return to_float32(torch.from_numpy(rows), device, normalize)


def load_all_rows(matrix: RowMatrix, device: torch.device, normalize: bool) -> torch.Tensor:
    """float32 (N, d): all rows, as `load_rows` returns them, a few thousand at a time."""
    rows = torch.empty(matrix.shape, dtype=torch.float32, device=device)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, len(rows))
        rows[start:stop] = load_rows(matrix, start, stop, device, normalize)
    return rows


def both_sides(
    embeddings: Embeddings,
    device: torch.device,
    normalize: bool,
    rows: NDArray[np.int64] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 (n, d) each: all rows of x and of y, or the given ones, in their order. With one
    matrix, both are the same tensor."""

    def load(matrix: RowMatrix) -> torch.Tensor:
        if rows is None:
            return load_all_rows(matrix, device, normalize)
        return to_float32(torch.from_numpy(matrix.take(rows)), device, normalize)

    x = load(embeddings.x)
    return x, load(embeddings.y) if embeddings.paired else x


def mined(embeddings: Embeddings, device: torch.device, normalize: bool) -> torch.Tensor:
    """float32 (k, N, d): all mined negatives."""
    out = torch.empty((len(embeddings.negatives), *embeddings.x.shape), device=device)
    for rows, matrix in zip(out, embeddings.negatives, strict=True):
        rows.copy_(load_all_rows(matrix, device, normalize))
    return out


def to_float32(rows: torch.Tensor, device: torch.device, normalize: bool) -> torch.Tensor:
    """float32 copy of ``rows`` on ``device``, of unit length if ``normalize``."""
    rows = rows.to(device).float()
    if not normalize:
        return rows
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
    return torch.div(rows, length.float())


def mean_row(
    matrix: RowMatrix, device: torch.device, normalize: bool, advance: Callable[[int], None]
) -> torch.Tensor:
    """float32 (d,): the mean of all (normalised) rows."""
    total = torch.zeros(matrix.shape[1], dtype=torch.float64, device=device)
    for start in range(0, matrix.shape[0], _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, matrix.shape[0])
        total += load_rows(matrix, start, stop, device, normalize).sum(0)
        advance(stop - start)
    return (total / matrix.shape[0]).float()
