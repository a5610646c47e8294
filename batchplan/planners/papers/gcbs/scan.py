"""The candidate edges of a block of rows: screens tile after tile, and scores the entries in doubt.

This is for the CPU; `batchplan.graph.cuda` is for CUDA devices. A score is the float64 dot product
of float32 rows, rounded to float32, so it does not depend on tiles, threads or the screening type.
A candidate that is certainly an edge has no score (inf).
"""

from dataclasses import dataclass

import numpy as np
import torch

from batchplan.graph.screen import Keys, Queries
from batchplan.kernels import AHEAD, LANES, dot, exact_dot, njit, prefetch, reaching, trailing_zeros

_GROUP = 64  # scores whose rows stay in cache


@dataclass(frozen=True, eq=False)
class EdgeBlock:
    """Candidate edges of the rows ``first_row``, ``first_row`` + 1, ...

    Attributes:
        counts: int64 (R,), how many candidates each row has.
        columns: int32 or int64, row after row, ascending within a row.
        scores: float32, inf where an edge is certain and was not scored.
        certain: how many candidates have no score.
    """

    first_row: int
    counts: torch.Tensor
    columns: torch.Tensor
    scores: torch.Tensor
    certain: int


def scan_cpu(
    queries: Queries, first_row: int, keys: Keys, lower: float, room: int, width: int
) -> EdgeBlock | None:
    """Find the candidates of one block of query rows, in host memory on the calling thread.

    Args:
        queries: the rows from ``first_row`` on.
        keys: all rows of Y.
        lower: the least score of a candidate.
        room: the most candidates of the block.
        width: of the tiles, a multiple of `ALIGNMENT`.

    Returns:
        The block, or None if it has more candidates than ``room``.
    """
    n, height = len(keys.rows), len(queries.rows)
    dtype = queries.operand.dtype
    bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
    entry = np.int16 if dtype == torch.bfloat16 else np.int32
    never = np.full(width, np.iinfo(entry).max, entry)
    certain_bits, rows = _as_bits(queries.certain, dtype), queries.rows.numpy()
    rough = np.float32(lower), queries.hopeless, queries.sure
    index = np.int32 if n < 2**31 else np.int64
    # Memory is mapped when it is written, and few entries are candidates.
    columns = np.empty(height * width, index)
    scores = np.empty(height * width, np.float32)
    in_doubt = tuple(np.empty(height * width, np.int32) for _ in range(2))
    tiles = -(-n // width)
    counts = np.zeros((tiles, height), np.int64)
    pieces = []
    total = certain = 0
    for at, first in enumerate(range(0, n, width)):
        # The last tile may have fewer rows than the operand, which is padded to whole words.
        tile = queries.operand @ keys.operand[first : first + width].T
        part = keys.rows[first : first + width].numpy()
        end, doubted = _list(
            tile.view(bits).numpy(), never, certain_bits, first_row - first, counts[at], columns,
            in_doubt,
        )  # fmt: skip
        scores[:end] = np.inf
        _score(doubted, rows, part, *rough, columns, scores, in_doubt)
        count, sure = _keep(first, counts[at], columns, scores)
        pieces.append((columns[:count].copy(), scores[:count].copy()))
        total += count
        certain += sure
        if total > room:
            return None
    joined = np.empty(total, index), np.empty(total, np.float32)
    places = np.cumsum(counts.sum(0)) - counts.sum(0)
    for piece, count in zip(pieces, counts, strict=True):
        _place(*piece, count, places, *joined)
    by_row, all_columns, all_scores = map(torch.from_numpy, (counts.sum(0), *joined))
    return EdgeBlock(first_row, by_row, all_columns, all_scores, certain)


def _as_bits(value: float, dtype: torch.dtype) -> int:
    """The bit pattern of ``value``, rounded up: positive floats are ordered as their patterns."""
    number = torch.tensor(value, dtype=dtype)
    if float(number) < value:
        number = torch.nextafter(number, torch.tensor(torch.inf, dtype=dtype))
    return int(number.view(torch.int16 if dtype == torch.bfloat16 else torch.int32))


@njit
def _list(  # type: ignore[no-untyped-def]
    bits, never, certain_bits, diagonal, counts, columns, in_doubt
):
    """Write the columns of the entries that are not negative, by row, and the rows and places of
    the entries in doubt; count both."""
    height, width = bits.shape
    zero = bits.dtype.type(0)
    end = doubted = 0
    owners, places = in_doubt
    for r in range(height):
        row = bits[r]
        before = end
        for start in range(0, width, LANES):
            hits = reaching(row, never, start, zero)
            while hits:
                c = start + trailing_zeros(hits)
                hits &= hits - np.uint64(1)
                columns[end] = c
                owners[doubted], places[doubted] = r, end
                other = c != diagonal + r
                doubted += other and row[c] <= certain_bits
                end += other
        counts[r] = end - before
    return end, doubted


@njit
def _score(  # type: ignore[no-untyped-def]
    doubted, rows, keys, lower, hopeless, sure, columns, scores, in_doubt
):
    """Score the candidates in doubt; -inf for one that is no edge."""
    owners, places = in_doubt
    between = np.empty(_GROUP, np.int64)
    for start in range(0, doubted, _GROUP):
        count = 0
        for at in range(start, min(start + _GROUP, doubted)):
            prefetch(keys, columns[places[min(at + AHEAD, doubted - 1)]])
            about = dot(rows[owners[at]], keys[columns[places[at]]])  # faster than `exact_dot`
            scores[places[at]] = np.inf if about > sure else -np.inf
            between[count] = at
            count += hopeless <= about <= sure
        for at in between[:count]:
            score = exact_dot(rows[owners[at]], keys[columns[places[at]]])
            scores[places[at]] = score if score >= lower else -np.inf


@njit
def _keep(first_column, counts, columns, scores):  # type: ignore[no-untyped-def]
    """Remove candidates with a score of -inf; count the others, and those without a score."""
    source = target = certain = 0
    for r in range(counts.size):
        before = target
        for at in range(source, source + counts[r]):
            columns[target], scores[target] = first_column + columns[at], scores[at]
            certain += scores[at] == np.inf
            target += scores[at] > -np.inf
        source += counts[r]
        counts[r] = target - before
    return target, certain


@njit
def _place(columns, scores, counts, places, out_columns, out_scores):  # type: ignore[no-untyped-def]
    """Append the candidates of a tile to the candidates of earlier tiles, row by row."""
    source = 0
    for r in range(counts.size):
        target = places[r]
        for e in range(counts[r]):
            out_columns[target + e] = columns[source + e]
            out_scores[target + e] = scores[source + e]
        source += counts[r]
        places[r] = target + counts[r]
