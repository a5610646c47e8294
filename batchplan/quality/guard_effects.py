"""What guards against false negatives would keep away from a row, so that one can choose one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchplan.data import Embeddings, RowMatrix

SHARES = (0.70, 0.80, 0.85, 0.90, 0.95, 1.00)
MARGINS = (0.0, 0.05, 0.1)

_SAMPLED = 1024  # rows that are compared with all rows
_PAIRS = 1 << 27  # similarities of a sample; of very many rows fewer are sampled
_FEWEST = 64
_COLUMNS = 1024  # of a tile: with 1024 rows it is 4 MB and stays in the cache


@dataclass(frozen=True, kw_only=True)
class GuardEffect:
    """What one guard would do; one of ``max_similarity`` and ``margin`` is None.

    Attributes:
        max_similarity, margin: the guard, as `evaluate` takes it.
        kept_away: mean number of other rows that it keeps away from a row.
        rows_affected: share of the rows from which it keeps any away.
    """

    max_similarity: float | None
    margin: float | None
    kept_away: float
    rows_affected: float


def sampled_rows(generator: np.random.Generator, num_rows: int) -> NDArray[np.int64]:
    """The rows to compare with all, ascending: 1,024, or so few that memory and time stay small."""
    count = min(num_rows, _SAMPLED, max(_FEWEST, _PAIRS // num_rows))
    return np.sort(generator.choice(num_rows, count, replace=False))


def guard_effects(
    embeddings: Embeddings,
    similarity: str,
    positive: NDArray[np.float64],
    codes: list[NDArray[np.int64]],
    sample: NDArray[np.int64],
    advance: Callable[[int], None],
) -> tuple[list[GuardEffect], NDArray[np.float32]]:
    """Compare sampled rows with all N, in float32.

    Args:
        embeddings: N pairs.
        similarity: ``cosine`` or ``dot``.
        positive: (N,), x_i . y_i.
        codes: each int64 (N,), of equal rows of a side, -1 for a row without an equal.
        sample: int64 (S,), rows.
        advance: told of rows compared with.

    Returns:
        Of each guard what it does, first `SHARES`, then `MARGINS`; and the largest max(s_ij, s_ji)
        of each sampled row i over j != i, (S,).
    """
    sides = [embeddings.x, embeddings.y][: 1 + embeddings.paired]
    own = [measured_rows(side, sample, similarity)[0] for side in sides]
    near = positive.astype(np.float32)
    kept = np.zeros((len(SHARES) + len(MARGINS), len(sample)), np.int64)
    hardest = np.full(len(sample), -np.inf, np.float32)
    for start in range(0, len(near), _COLUMNS):
        columns = np.arange(start, min(start + _COLUMNS, len(near)))
        keys = [measured_rows(side, columns, similarity)[0] for side in sides]
        highest = own[0] @ keys[-1].T
        if embeddings.paired:
            np.maximum(highest, own[1] @ keys[0].T, out=highest)
        others = sample[:, None] != columns
        highest[~others] = -np.inf
        np.maximum(hardest, highest.max(axis=1), out=hardest)
        equal = np.zeros_like(others)
        for side in codes:
            equal |= (side[sample, None] == side[columns]) & (side[columns] >= 0) & others
        least = np.minimum(near[sample, None], near[columns])
        for row, limit in enumerate(_limits(least)):
            kept[row] += ((highest >= limit) | equal).sum(axis=1)
        advance(len(columns))
    by_share, by_margin = kept[: len(SHARES)], kept[len(SHARES) :]
    effects = [_effect(share, None, row) for share, row in zip(SHARES, by_share, strict=True)]
    effects += [_effect(None, margin, row) for margin, row in zip(MARGINS, by_margin, strict=True)]
    return effects, hardest


def _limits(least: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """The lower ceiling of pairs whose lower positive is ``least``, of each guard in turn."""
    yield from (np.float32(share) * least for share in SHARES)
    yield from (least - np.float32(margin) for margin in MARGINS)


def _effect(
    max_similarity: float | None, margin: float | None, kept: NDArray[np.int64]
) -> GuardEffect:
    return GuardEffect(
        max_similarity=max_similarity,
        margin=margin,
        kept_away=float(kept.mean()),
        rows_affected=float((kept > 0).mean()),
    )


def measured_rows(
    matrix: RowMatrix, indices: NDArray[np.int64], similarity: str
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Rows in float32, of unit length under cosine, and the lengths that they are stored with."""
    rows = matrix.take(indices).astype(np.float32)
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))  # squares overflow early
    if similarity == "cosine":
        rows /= length[:, None].astype(np.float32)
    return rows, length
