"""The candidate edges of a block of rows: screen tile after tile, score what is in doubt.

`scan_cpu` (numba) and `scan_torch` (any device) find the same candidates. A score is the float32
rounding of the float64 dot product of float32 rows, so it depends on neither tile shapes, thread
counts nor the screening type; a candidate that is certainly an edge goes without one (inf).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from batchplan.graph.screen import Keys, Queries
from batchplan.guard.rules import dot
from batchplan.kernels import njit

_Found = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # rows, columns, scores


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
    dtype = queries.operand.dtype
    bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
    certain = _as_bits(queries.certain, dtype)
    rough = queries.hopeless, queries.sure
    size = len(queries.rows) * limits.width
    found = np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size, np.float32)

    def search(tile: torch.Tensor, first_column: int) -> _Found:
        part = keys.rows[first_column : first_column + limits.width]
        count = _search_tile(
            tile.view(bits).numpy(), certain, queries.rows.numpy(), part.numpy(), first_row,
            first_column, np.float32(limits.lower), rough, *found,
        )  # fmt: skip
        rows, columns, scores = (torch.from_numpy(part[:count].copy()) for part in found)
        return rows, columns, scores

    return _scan(queries, first_row, keys, limits, search)


def scan_torch(queries: Queries, first_row: int, keys: Keys, limits: ScanLimits) -> Block | None:
    """The same in plain torch, on the device of the keys."""
    lower = torch.tensor(limits.lower, dtype=torch.float32, device=keys.rows.device)

    def search(tile: torch.Tensor, first_column: int) -> _Found:
        row, column = (tile >= 0).nonzero(as_tuple=True)
        other = row + first_row != column + first_column
        row, column = row[other], column[other]
        scores = torch.full(row.shape, torch.inf, device=row.device)
        in_doubt = (tile[row, column] <= queries.certain).nonzero()[:, 0]
        column += first_column
        for part in torch.split(in_doubt, 1 << 18):  # a gigabyte or so of gathered rows at most
            products = queries.rows[row[part]].double() * keys.rows[column[part]].double()
            scores[part] = products.sum(1).float()
        keep = scores >= lower
        return row[keep], column[keep], scores[keep]

    return _scan(queries, first_row, keys, limits, search)


def _scan(
    queries: Queries,
    first_row: int,
    keys: Keys,
    limits: ScanLimits,
    search: Callable[[torch.Tensor, int], _Found],
) -> Block | None:
    """``search`` gives the candidates of a tile, by row, then by column."""
    n = len(keys.rows)
    index = torch.int32 if n < 2**31 else torch.int64
    pieces = []
    total = 0
    for first in range(0, n, limits.width):
        # n may end within the tile; the operand goes on to a whole number of words.
        tile = queries.operand @ keys.operand[first : first + limits.width].T
        rows, columns, scores = search(tile, first)
        pieces.append((rows, columns.to(index), scores))
        total += len(rows)
        if total > limits.candidates:
            return None
    rows, columns, scores = (torch.cat(part) for part in zip(*pieces, strict=True))
    by_row = torch.argsort(rows, stable=True)
    counts = torch.bincount(rows, minlength=len(queries.rows))
    certain = int(torch.isinf(scores).sum())
    return Block(first_row, counts, columns[by_row], scores[by_row], certain)


def _as_bits(value: float, dtype: torch.dtype) -> int:
    """The bit pattern of ``value``, rounded up: positive floats order as their patterns do."""
    number = torch.tensor(value, dtype=dtype)
    if float(number) < value:
        number = torch.nextafter(number, torch.tensor(torch.inf, dtype=dtype))
    return int(number.view(torch.int16 if dtype == torch.bfloat16 else torch.int32))


@njit(fastmath={"reassoc", "contract"})
def exact_dot(a, b):  # type: ignore[no-untyped-def]
    """float32: the product of two float32 rows, rounded once from float64."""
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return np.float32(total)


@njit
def _search_tile(  # type: ignore[no-untyped-def]
    bits, certain_bits, rows, keys, first_row, first_column, lower, rough,
    out_rows, out_columns, out_scores,
):  # fmt: skip
    """Write the candidates of a tile, given as its bits, and count them."""
    height, width = bits.shape
    size = 8 * bits.itemsize
    lanes = 64 // size
    words = bits.view(np.int64)
    signs = np.int64(0)
    for lane in range(lanes):
        signs |= np.int64(1) << (size * lane + size - 1)
    hopeless, sure = rough
    positive = np.empty(width + 1, np.int64)  # one more, for a write that is not kept
    end = 0
    for r in range(height):
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
                        positive[n] = (w + k) * lanes + lane
                        n += ~(part[k] >> (size * lane + size - 1)) & 1
        diagonal = first_row + r - first_column
        for c in positive[:n]:
            score = np.float32(np.inf)
            if c == diagonal:
                continue
            if bits[r, c] <= certain_bits:
                about = dot(rows[r], keys[c])  # half the time of the exact one
                if about < hopeless:
                    continue
                if about <= sure:
                    score = exact_dot(rows[r], keys[c])
                    if score < lower:
                        continue
            out_rows[end] = r
            out_columns[end] = first_column + c
            out_scores[end] = score
            end += 1
    return end
