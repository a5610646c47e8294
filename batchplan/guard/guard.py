"""Which pairs of rows are too alike to be each other's negatives: false negatives, most likely.

Positive-aware mining (NV-Retriever: Moreira et al. 2024, arXiv 2407.15831): what a row is compared
with is the similarity of its own positive, p_i = x_i . y_i. A row's *ceiling* c_i is a share of
p_i, or p_i less a margin. Two rows break the guard when

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
from batchplan.data.rows import load_rows
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
    max_similarity: float | None = None,
    margin: float | None = None,
    groups: Sequence[NDArray[np.int64]] = (),
    duplicates: bool = True,
) -> Guard:
    """The guard of some data: O(N d), and nothing where nothing is asked for.

    Args:
        embeddings: N pairs of d dimensions.
        runtime: progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        max_similarity: ceilings are this share of p_i, above 0.
        margin: ceilings are p_i less this, 0 or more. Planners take the one or the other.
        groups: codes (N,) of rows to keep apart, -1 for a row of no group.
        duplicates: keep rows apart whose x, or whose y, are equal.

    Raises:
        InputError: as `Embeddings.require_similarities`, where ceilings are asked for.
    """
    n = embeddings.num_rows
    sides = [embeddings.x, embeddings.y][: 1 + embeddings.paired] if duplicates else []
    limited = max_similarity is not None or margin is not None
    share = 1.0 if max_similarity is None else max_similarity
    less = 0.0 if margin is None else margin
    ceilings = None
    with runtime.stage("guard", n * (len(sides) + limited)) as advance:
        apart = [*groups, *(duplicate_codes(side, advance) for side in sides)]
        if limited:
            ceilings = np.empty(n, np.float32)
            embeddings.require_similarities(similarity)
            for start in range(0, n, _ROWS_AT_ONCE):
                own = _positives(embeddings, start, similarity == "cosine")
                ceilings[start : start + len(own)] = share * own - less
                advance(len(own))
    return Guard(ceilings, tuple(codes for codes in apart if _repeats(codes)))


def _positives(embeddings: Embeddings, start: int, normalize: bool) -> NDArray[np.float64]:
    """p_i of a few thousand rows: float32 rows, multiplied and added in float64."""
    stop = min(start + _ROWS_AT_ONCE, embeddings.num_rows)
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
