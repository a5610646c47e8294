"""The edges that a block of rows may have: screen tile after tile, score what is in doubt.

`scan_cpu` (numba) and `scan_torch` (any device) find the same candidates. A score is the float32
rounding of the float64 dot product of float32 rows, so it depends on neither tile shapes, thread
counts nor the screening type; a candidate that is certainly an edge goes without one (inf).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from batchplan.graph.screen import Keys, Queries
from batchplan.kernels import njit


@dataclass(frozen=True, eq=False)
class Block:
    """Candidate edges of the rows ``first_row``, ``first_row`` + 1, ...

    Attributes:
        counts: int64 (R,), candidates of each row.
        columns: int32 or int64, row after row, ascending within a row.
        scores: float32, inf where an edge is certain and was not scored.
        certain: how many have no score.
    """

    first_row: int
    counts: torch.Tensor
    columns: torch.Tensor
    scores: torch.Tensor
    certain: int


@dataclass(frozen=True, eq=False)
class ScanLimits:
    """Keep scores of ``lower`` or more, at most ``candidates`` a block; tiles are ``width`` wide,
    a multiple of `ALIGNMENT`."""

    lower: float
    candidates: int
    width: int


def scan_cpu(queries: Queries, first_row: int, keys: Keys, limits: ScanLimits) -> Block | None:
    """The candidates of one block of query rows, in host memory on the calling thread.

    Returns:
        The block, or None if it has more candidates than ``limits`` allows.
    """
    n = keys.rows.shape[0]
    height = queries.rows.shape[0]
    bits_type = torch.int16 if queries.operand.dtype == torch.bfloat16 else torch.int32
    certain_bits = _as_bits(queries.certain, queries.operand.dtype)
    index = np.int32 if n < 2**31 else np.int64
    columns = np.empty((height, limits.width + 1), index)  # one more: see where _scan_tile appends
    scores = np.empty(columns.shape, np.float32)
    counts, packed_columns, packed_scores = [], [], []
    total = certain = 0
    for first in range(0, n, limits.width):
        # n may end within the tile; the operand goes on to a whole number of words.
        tile = queries.operand @ keys.operand[first : first + limits.width].T
        found = np.zeros(height, np.int64)
        certain += _scan_tile(
            tile.view(bits_type).numpy(), certain_bits, queries.rows.numpy(),
            keys.rows[first : first + limits.width].numpy(), first_row, first,
            np.float32(limits.lower), (queries.hopeless, queries.sure), found, columns, scores,
        )  # fmt: skip
        total += int(found.sum())
        if total > limits.candidates:
            return None
        counts.append(found)
        packed = _pack(found, columns, scores)
        packed_columns.append(packed[0])
        packed_scores.append(packed[1])
    tile_counts = np.stack(counts)
    rows = _regroup(tile_counts, np.concatenate(packed_columns), np.concatenate(packed_scores))
    by_row = torch.from_numpy(tile_counts.sum(0))
    return Block(first_row, by_row, torch.from_numpy(rows[0]), torch.from_numpy(rows[1]), certain)


def scan_torch(queries: Queries, first_row: int, keys: Keys, limits: ScanLimits) -> Block | None:
    """The same in plain torch, on the device of the keys."""
    n = keys.rows.shape[0]
    index = torch.int32 if n < 2**31 else torch.int64
    lower = torch.tensor(limits.lower, dtype=torch.float32, device=keys.rows.device)
    pieces = []
    total = 0
    for first in range(0, n, limits.width):
        tile = queries.operand @ keys.operand[first : first + limits.width].T
        row, column = (tile >= 0).nonzero(as_tuple=True)
        other = row + first_row != column + first
        row, column = row[other], column[other]
        scores = torch.full(row.shape, torch.inf, device=row.device)
        in_doubt = (tile[row, column] <= queries.certain).nonzero()[:, 0]
        column += first
        for part in torch.split(in_doubt, 1 << 18):  # a gigabyte or so of gathered rows at most
            products = queries.rows[row[part]].double() * keys.rows[column[part]].double()
            scores[part] = products.sum(1).float()
        keep = scores >= lower
        pieces.append((row[keep], column[keep].to(index), scores[keep]))
        total += pieces[-1][0].numel()
        if total > limits.candidates:
            return None
    rows, columns, scores = (torch.cat(part) for part in zip(*pieces, strict=True))
    by_row = torch.argsort(rows, stable=True)
    counts = torch.bincount(rows, minlength=queries.rows.shape[0])
    certain = int(torch.isinf(scores).sum())
    return Block(first_row, counts, columns[by_row], scores[by_row], certain)


def _as_bits(value: float, dtype: torch.dtype) -> int:
    """The bit pattern of ``value``, rounded up: positive floats order as their patterns do."""
    number = torch.tensor(value, dtype=dtype)
    if float(number) < value:
        number = torch.nextafter(number, torch.tensor(torch.inf, dtype=dtype))
    return int(number.view(torch.int16 if dtype == torch.bfloat16 else torch.int32))


@njit(fastmath={"reassoc", "contract"})
def _rough_dot(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@njit(fastmath={"reassoc", "contract"})
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return np.float32(total)


@njit
def _scan_tile(  # type: ignore[no-untyped-def]
    bits, certain_bits, rows, keys, first_row, first_column, lower, rough, counts, columns, scores
):
    height, width = bits.shape
    size = 8 * bits.itemsize
    lanes = 64 // size
    words = bits.view(np.int64)
    signs = np.int64(0)
    for lane in range(lanes):
        signs |= np.int64(1) << (size * lane + size - 1)
    hopeless, sure = rough
    certain = 0
    for r in range(height):
        row = columns[r]
        n = 0
        # Positive entries are rare: eight words at a time say by their sign bits whether there is
        # any (a plain loop with a comparison and a branch an entry took three times as long).
        for w in range(0, width // lanes, 8):
            part = words[r, w : w + 8]
            both = part[0] & part[1] & part[2] & part[3] & part[4] & part[5] & part[6] & part[7]
            if both & signs == signs:
                continue
            for k in range(8):
                if part[k] & signs != signs:
                    for lane in range(lanes):
                        row[n] = (w + k) * lanes + lane
                        n += ~(part[k] >> (size * lane + size - 1)) & 1
        kept = 0
        diagonal = first_row + r - first_column
        for c in row[:n]:
            score = np.float32(np.inf)
            if c == diagonal:
                continue
            if bits[r, c] <= certain_bits:
                about = _rough_dot(rows[r], keys[c])  # half the time of the exact one
                if about < hopeless:
                    continue
                if about <= sure:
                    score = _dot(rows[r], keys[c])
                    if score < lower:
                        continue
            certain += score == np.inf
            row[kept] = first_column + c
            scores[r, kept] = score
            kept += 1
        counts[r] = kept
    return certain


@njit
def _pack(counts, columns, scores):  # type: ignore[no-untyped-def]
    """The first ``counts[r]`` entries of each row, back to back."""
    out_columns = np.empty(counts.sum(), columns.dtype)
    out_scores = np.empty(counts.sum(), scores.dtype)
    end = 0
    for r in range(counts.size):
        begin, end = end, end + counts[r]
        out_columns[begin:end] = columns[r, : counts[r]]
        out_scores[begin:end] = scores[r, : counts[r]]
    return out_columns, out_scores


@njit
def _regroup(counts, columns, scores):  # type: ignore[no-untyped-def]
    """From tile after tile to row after row; counts is (tiles, rows)."""
    tiles, height = counts.shape
    ends = counts.copy().reshape(-1).cumsum().reshape(tiles, height)
    out_columns, out_scores = np.empty_like(columns), np.empty_like(scores)
    stop = 0
    for r in range(height):
        for t in range(tiles):
            source = slice(ends[t, r] - counts[t, r], ends[t, r])
            begin, stop = stop, stop + counts[t, r]
            out_columns[begin:stop] = columns[source]
            out_scores[begin:stop] = scores[source]
    return out_columns, out_scores
