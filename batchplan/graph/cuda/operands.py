"""Rows as the screening kernel multiplies them, with a rigorous bound on rounding errors.

The entry of a pair is as in `batchplan.graph.screen`, an upper bound of its similarity:

    entry(i, j) = z~_i . w~_j  +  (x_i . nu + err_i)  +  (y_j - nu) . mu  >=  x_i . y_j

The kernel adds the two terms in float32 and compares with limits. So they need no columns, and an
entry is never rounded to the screening type. An entry is below x_i . y_j + 2 err_i. All listed
pairs are scored exactly: 7 x 10^8 pairs gather 2 TB of rows of 768 dimensions in 0.7 s at 3.35
TB/s. A second mask, of the pairs that need no score, would not pay for that.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from batchplan.graph.cuda.kernels import tile_of

_AT_ONCE = 1 << 14  # rows; temporaries of 150 MB at 768 dimensions


@dataclass(frozen=True, eq=False)
class DeviceKeys:
    """All rows of Y on one device, ready for screening.

    Attributes:
        rows: float32 (N, d), for exact scores.
        rounded: (N', d') w~ in the screening type, padded with zeros to whole tiles.
        terms: float32 (N',), (y_j - nu) . mu; -inf for padding, which is never a candidate.
        query_mean, key_mean: float32 (d,): mu and nu.
        largest: float32 (4,), the largest |w~_j|, |w_j - w~_j|, |(y_j - nu) . mu| and |y_j|.
    """

    rows: torch.Tensor
    rounded: torch.Tensor
    terms: torch.Tensor
    query_mean: torch.Tensor
    key_mean: torch.Tensor
    largest: torch.Tensor

    def to(self, device: torch.device) -> "DeviceKeys":
        """A copy on another device."""
        moved: dict[str, Any] = {name: part.to(device) for name, part in vars(self).items()}
        return replace(self, **moved)

    def padded(self, limits: torch.Tensor) -> torch.Tensor:
        """Limits of columns, float32 (N,), as the kernel needs them: (N',), above -inf."""
        return _padded(limits, len(self.terms))


@dataclass(frozen=True, eq=False)
class DeviceQueries:
    """A strip of rows of X: ``rows`` float32 (R, d), and z~ and x_i . nu + err_i, padded alike."""

    rows: torch.Tensor
    rounded: torch.Tensor
    terms: torch.Tensor

    def padded(self, limits: torch.Tensor) -> torch.Tensor:
        """Limits of rows, float32 (R,), as the kernel needs them."""
        return _padded(limits, len(self.terms))


def keys_from(
    rows: torch.Tensor, query_mean: torch.Tensor, key_mean: torch.Tensor, dtype: torch.dtype
) -> DeviceKeys:
    """Round all key rows."""
    n, d = rows.shape
    tile = tile_of(dtype)
    rounded = _zeros(n, d, tile.columns, rows.device, dtype)
    terms = torch.full((len(rounded),), -torch.inf, device=rows.device)
    largest = torch.zeros(4, device=rows.device)
    for start in range(0, n, _AT_ONCE):
        chunk = rows[start : start + _AT_ONCE]
        stop = start + len(chunk)
        centred = chunk - key_mean
        rounded[start:stop, :d] = centred
        near = rounded[start:stop, :d].float()
        term = ((chunk.double() - key_mean.double()) @ query_mean.double()).float()
        terms[start:stop] = term
        sizes = near.norm(dim=1), (centred - near).norm(dim=1), term.abs(), chunk.norm(dim=1)
        largest = torch.maximum(largest, torch.stack([size.max() for size in sizes]))
    return DeviceKeys(rows, rounded, terms, query_mean, key_mean, largest)


def queries_from(rows: torch.Tensor, keys: DeviceKeys) -> DeviceQueries:
    """Round a strip of query rows, without waiting for the device."""
    n, d = rows.shape
    dtype = keys.rounded.dtype
    rounded = _zeros(n, d, tile_of(dtype).rows, rows.device, dtype)
    centred = rows - keys.query_mean
    rounded[:n, :d] = centred
    longest, residue, offset, length = keys.largest
    lengths = centred.norm(dim=1)
    term = (rows.double() @ keys.key_mean.double()).float()
    error = (centred - rounded[:n, :d].float()).norm(dim=1) * longest + lengths * residue
    # Matrix units add groups of 4 products or more to a sum and cut each to 24 bits of the largest
    # (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021): 1.5 d
    # errors of 2^-23 at most. The rest is for the means, the terms and the norms themselves.
    error += (2 * d + 16) * 2.0**-23 * (lengths * longest + term.abs() + offset)
    error += (2 * d + 16) * 2.0**-126  # products below the range of float32
    # A score just below a limit may be rounded up to it, to float32.
    error += 2.0**-23 * rows.norm(dim=1) * length
    terms = torch.full((len(rounded),), -torch.inf, device=rows.device)
    terms[:n] = term + error
    return DeviceQueries(rows, rounded, terms)


def _zeros(
    rows: int, columns: int, whole: int, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    depth = tile_of(dtype).depth
    shape = rows + -rows % whole, columns + -columns % depth
    return torch.zeros(shape, dtype=dtype, device=device)


def _padded(limits: torch.Tensor, size: int) -> torch.Tensor:
    lowest = torch.finfo(torch.float32).min  # above the entries of padding, which are -inf
    out = torch.full((size,), torch.inf, device=limits.device)
    out[: len(limits)] = limits.clamp(min=lowest)
    return out
