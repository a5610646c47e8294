"""Reads the rows of the data for metrics: normalised, as float32, on the device."""

from copy import copy

import torch

from batchplan.data import RowMatrix
from batchplan.typing import Int64Array

_READ_AT_ONCE = 4096  # rows
# BLAS sums matrices with fewer rows or columns than 16 in another order; see `MeasuredRows.block`.
_PAD_TO = 64
_ONE_DNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # not in every build of torch


class MeasuredRows:
    """One side of the data, X or Y: (N, d) rows, of unit length under cosine similarity.

    Rows are normalised in float64 and rounded to float32 once, so that every metric sees the same
    numbers. They are kept in memory if ``hold``, else read and normalised again at each use.

    Attributes:
        held: float32 (N, d), on the device; None if they are not in memory.
    """

    def __init__(self, matrix: RowMatrix, normalize: bool, device: torch.device, hold: bool):
        self.num_rows, self.dim = matrix.shape
        self.device = device
        self._matrix = matrix
        self._normalize = normalize
        self.held: torch.Tensor | None = None
        if hold:
            held = torch.empty((self.num_rows, self.dim), dtype=torch.float32, device=device)
            for start, stop in spans(self.num_rows, _READ_AT_ONCE):
                held[start:stop] = self._read(start, stop)
            self.held = held

    def block(self, start: int, stop: int) -> torch.Tensor:
        """Return rows start to stop, then rows of zeros up to a multiple of 64: float32 (R, d).

        Equal rows must have equal similarities wherever they are, or rounding errors would break
        ties. That holds if no matrix product is tiny, hence the padding.
        """
        return _padded(self._read(start, stop) if self.held is None else self.held[start:stop])

    def some(self, indices: Int64Array) -> torch.Tensor:
        """Return the rows at ``indices`` (m,), then zeros as in a `block`: float32 (R, d)."""
        return _padded(self.gather(indices).float())

    def gather(self, indices: Int64Array) -> torch.Tensor:
        """Return the rows at ``indices`` (m,), float64 (m, d)."""
        if self.held is None:
            return self._unit(torch.from_numpy(self._matrix.take(indices))).double()
        return self.held[torch.from_numpy(indices).to(self.device)].double()

    def subset(self, indices: Int64Array) -> "MeasuredRows":
        """Return the rows at ``indices`` (m,) as a side of m rows, in memory."""
        taken = copy(self)
        taken.num_rows, taken.held = len(indices), self.gather(indices).float()
        return taken

    def longest(self) -> float:
        """Return the length of the longest row."""
        return max(
            float(torch.linalg.vector_norm(self.block(*span), dim=1, dtype=torch.float64).max())
            for span in spans(self.num_rows, _READ_AT_ONCE)
        )

    def _read(self, start: int, stop: int) -> torch.Tensor:
        # A copy, since torch warns about the read-only views that the matrix may return.
        return self._unit(torch.tensor(self._matrix.rows(start, stop)))

    def _unit(self, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.to(self.device)
        if not self._normalize:
            return rows.float()
        wide = rows.double()
        lengths: torch.Tensor = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        return (wide / lengths).float()


def products(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the inner products of float32 rows, (R, d) and (C, d): float32 (R, C).

    On a processor of AMD, oneDNN is twice as fast as the MKL behind `torch.mm`.
    """
    if queries.device.type == "cpu" and _ONE_DNN is not None:
        return _ONE_DNN(queries, keys, None, "none", [], "")  # type: ignore[no-any-return]
    return queries @ keys.T


def _padded(rows: torch.Tensor) -> torch.Tensor:
    missing = -len(rows) % _PAD_TO
    return torch.nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows


def spans(total: int, step: int) -> list[tuple[int, int]]:
    """Cut 0 to ``total`` into pieces (start, stop) of at most ``step``."""
    return [(start, min(start + step, total)) for start in range(0, total, step)]
