"""The guard: which pairs of rows are too alike to be each other's negatives.

Positive-aware mining (NV-Retriever: Moreira et al. 2024, arXiv 2407.15831) compares a negative with
the similarity of a row's own positive, p_i = x_i . y_i. The *ceiling* c_i of row i is

    p_i - |p_i| R   with a relative margin R (which lies below p_i where that is negative, too),
    p_i - M         with an absolute margin M, or
    C               with a maximum score C.

Two rows break the guard when

    (a) max(s_ij, s_ji) >= min(c_i, c_j), s_ij = x_i . y_j; or
    (b) they are of one group; or
    (c) their x, or their y, are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.duplicates import duplicate_codes
from batchplan.data.labels import load_labels
from batchplan.data.rows import load_rows
from batchplan.guard.options import GuardOptions
from batchplan.runtime import Runtime

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Guard:
    """What rows must not share a batch, or be negatives of each other.

    Attributes:
        ceilings: float32 (N,), c_i; None where no similarity is too high.
        apart: each int64 (N,): rows of one code of 0 or more are kept apart, -1 is no code.
    """

    ceilings: NDArray[np.float32] | None = None
    apart: tuple[NDArray[np.int64], ...] = ()

    @property
    def active(self) -> bool:
        """Whether there is anything to keep apart."""
        return self.ceilings is not None or bool(self.apart)

    def among(self, rows: NDArray[np.int64]) -> Guard:
        """The guard of some rows (n,), numbered as they are given."""
        ceilings = None if self.ceilings is None else self.ceilings[rows]
        return Guard(ceilings, tuple(codes[rows] for codes in self.apart))

    def codes(self) -> NDArray[np.int64]:
        """int64 (C, N): all of ``apart``, as compiled code takes them."""
        shape = (len(self.apart), len(self.apart[0]) if self.apart else 0)
        return np.array(self.apart, np.int64).reshape(shape)


def make_guard(
    embeddings: Embeddings,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
    groups: Sequence[NDArray[np.int64]] = (),
    duplicates: bool = True,
) -> Guard:
    """The guard of some data: O(N d), and nothing where nothing is asked for.

    Args:
        embeddings: N pairs of d dimensions.
        runtime: progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        relative_margin, absolute_margin, max_score: R, M or C, at most one of them.
        groups: codes (N,) of rows to keep apart, -1 for a row of no group.
        duplicates: keep rows apart whose x, or whose y, are equal.

    Raises:
        InputError: as `Embeddings.require_similarities`, where ceilings are asked for.
    """
    n = embeddings.num_rows
    sides = [embeddings.x, embeddings.y][: 1 + embeddings.paired] if duplicates else []
    relative, less = relative_margin or 0.0, absolute_margin or 0.0
    limited = any(limit is not None for limit in (relative_margin, absolute_margin, max_score))
    ceilings = None
    with runtime.stage("guard", n * (len(sides) + limited)) as advance:
        apart = [*groups, *(duplicate_codes(side, advance) for side in sides)]
        if limited:
            embeddings.require_similarities(similarity)
            ceilings = np.full(n, max_score or 0.0, np.float32)
            for start in range(0, n, _ROWS_AT_ONCE):
                stop = min(start + _ROWS_AT_ONCE, n)
                if max_score is None:
                    own = _positives(embeddings, start, stop, similarity == "cosine")
                    share = np.where(own >= 0, 1 - relative, 1 + relative)
                    ceilings[start:stop] = share * own - less
                advance(stop - start)
    return Guard(ceilings, tuple(codes for codes in apart if _repeats(codes)))


def guard_of(embeddings: Embeddings, options: GuardOptions, runtime: Runtime) -> Guard:
    """The guard that the options ask for.

    Raises:
        InputError: no such group column, a zero row under cosine, or products that float32 cannot
            hold.
    """
    return make_guard(
        embeddings,
        runtime,
        similarity=options.similarity,
        relative_margin=options.relative_margin,
        absolute_margin=options.absolute_margin,
        max_score=options.max_score,
        groups=group_codes(embeddings, options.label_table, options.group_column),
        duplicates=options.guard,
    )


def group_codes(
    embeddings: Embeddings, table: str | None, *columns: str | None
) -> list[NDArray[np.int64]]:
    """Codes (N,) of each column that is named; raises as `load_labels`."""
    return [load_labels(name, embeddings, table) for name in columns if name is not None]


def _positives(
    embeddings: Embeddings, start: int, stop: int, normalize: bool
) -> NDArray[np.float64]:
    """p_i of some rows: float32 rows, multiplied and added in float64."""
    x, y = (
        load_rows(side, start, stop, torch.device("cpu"), normalize).double().numpy()
        for side in (embeddings.x, embeddings.y)
    )
    own: NDArray[np.float64] = np.einsum("nd,nd->n", x, y)
    return own


def _repeats(codes: NDArray[np.int64]) -> bool:
    """Whether any two rows have the same code."""
    given = np.sort(codes[codes >= 0])
    return bool((given[1:] == given[:-1]).any())
