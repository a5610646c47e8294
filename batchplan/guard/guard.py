"""The guard: which pairs of rows are too similar to be negatives.

Positive-aware mining (NV-Retriever: Moreira et al. 2024, arXiv 2407.15831) compares negatives of a
row with its positive, p_i = x_i . y_i. The *usual positive* is the median of all p_i, and q_i the
larger of it and p_i. The *ceiling* c_i of row i is

    q_i - |q_i| R   with a relative margin R (below q_i even if that is negative),
    q_i - M         with an absolute margin M, or
    C               with a maximum score C.

Without the usual positive, a row unlike its own pair would be kept apart from a quarter of all
rows, of which few are false negatives.

Two rows break the guard if

    (a) max(s_ij, s_ji) >= min(c_i, c_j), s_ij = x_i . y_j; or
    (b) they are in the same group; or
    (c) their x, or their y, are equal, or a mined negative of one is the y of the other.

A *reference*, embeddings of the same rows by another model, may judge (a). Then s and p are its
similarities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.candidates import Candidates, Data
from batchplan.data.duplicates import duplicate_codes
from batchplan.data.labels import load_labels
from batchplan.data.reference import load_reference
from batchplan.data.rows import load_rows
from batchplan.guard.ceilings import ceilings_of, usual_positive, usual_rows
from batchplan.guard.options import GuardOptions
from batchplan.runtime import Runtime

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Guard:
    """Which rows must not share a batch, or be negatives of each other.

    Attributes:
        ceilings: float32 (N,), c_i; None if no similarity is too high.
        apart: arrays of codes, int64 (N,). Rows of the same code are kept apart; -1 is no code.
        reference: N rows of another model. Their similarities are compared with the ceilings, if
            there are any; None compares those of the data.
    """

    ceilings: NDArray[np.float32] | None = None
    apart: tuple[NDArray[np.int64], ...] = ()
    reference: Embeddings | None = None

    @property
    def active(self) -> bool:
        """Whether it forbids any pair of rows."""
        return self.ceilings is not None or bool(self.apart)

    def among(self, rows: NDArray[np.int64]) -> Guard:
        """The guard of the given rows (n,), renumbered in their order."""
        ceilings = None if self.ceilings is None else self.ceilings[rows]
        reference = None if self.reference is None else self.reference.take(rows)
        return Guard(ceilings, tuple(codes[rows] for codes in self.apart), reference)

    def codes(self) -> NDArray[np.int64]:
        """int64 (C, N): all of ``apart``, for compiled code."""
        shape = (len(self.apart), len(self.apart[0]) if self.apart else 0)
        return np.array(self.apart, np.int64).reshape(shape)

    def compiled(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """For compiled code: the codes, and the ceilings, (0,) if there are none."""
        return self.codes(), np.empty(0, np.float32) if self.ceilings is None else self.ceilings


def make_guard(
    embeddings: Data,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
    groups: Sequence[NDArray[np.int64]] = (),
    usual: float | None = None,
    duplicates: bool = True,
    reference: Embeddings | None = None,
) -> Guard:
    """Make a guard in O(N d).

    Args:
        embeddings: N pairs of d dimensions; or lists of candidates, whose scores are the
            similarities. Equal rows of lists are not known.
        runtime: progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        relative_margin, absolute_margin, max_score: R, M or C; at most one.
        groups: codes (N,) of rows to keep apart, -1 for a row of no group.
        usual: the usual positive; None compares each row with its own positive alone.
        duplicates: keep rows with equal x, or with equal y, apart.
        reference: N rows of any dimension. Their similarities count instead of those of the data.

    Raises:
        InputError: as `Embeddings.require_similarities`, if there are ceilings.
    """
    limits = relative_margin, absolute_margin, max_score
    limited = any(limit is not None for limit in limits)
    usual = -np.inf if usual is None else usual
    if isinstance(embeddings, Candidates):
        found = ceilings_of(np.maximum(embeddings.positive, usual), *limits) if limited else None
        return Guard(found, tuple(codes for codes in groups if _repeats(codes)))
    n, judge = embeddings.num_rows, embeddings if reference is None else reference
    sides = [embeddings.x, embeddings.y][: 1 + embeddings.paired] if duplicates else []
    ceilings = None
    with runtime.stage("guard", n * (len(sides) + limited)) as advance:
        apart = [*groups, *(duplicate_codes(side, advance) for side in sides)]
        if limited:
            judge.require_similarities(similarity)
            parts = []
            for own in _positives(judge, similarity):
                parts.append(ceilings_of(np.maximum(own, usual), *limits))
                advance(len(own))
            ceilings = np.concatenate(parts)
    return Guard(ceilings, tuple(codes for codes in apart if _repeats(codes)), reference)


def guard_of(
    embeddings: Data, options: GuardOptions, runtime: Runtime, *, strict: bool = False
) -> Guard:
    """The guard that the options ask for.

    Args:
        embeddings: N rows.
        options: limit, groups and reference.
        runtime: progress.
        strict: compare each row with its own positive alone, as mining of negatives does.

    Raises:
        InputError: no such group column, a zero row under cosine, products that overflow float32,
            or as `load_reference`.
    """
    reference = None
    if not isinstance(embeddings, Candidates):
        reference = load_reference(options, embeddings, runtime)
    groups = group_codes(embeddings, options.label_table, options.group_column)
    usual = None if strict else usual_of(embeddings, options, reference)
    return make_guard(
        embeddings, runtime, **options.limits(), groups=groups, usual=usual, reference=reference
    )


def usual_of(
    embeddings: Data, options: GuardOptions, reference: Embeddings | None = None
) -> float | None:
    """The usual positive of the data, or of the reference if there is one; None if no limit depends
    on it."""
    if options.relative_margin is None and options.absolute_margin is None:
        return None
    rows = usual_rows(embeddings.num_rows)
    if isinstance(embeddings, Candidates):
        return usual_positive(embeddings.positive[rows])
    judge = embeddings if reference is None else reference
    judge.require_similarities(options.similarity)
    return usual_positive(positives(judge.take(rows), options.similarity))


def group_codes(
    embeddings: Data, table: str | None, *columns: str | None
) -> list[NDArray[np.int64]]:
    """Codes (N,) of each named column; raises as `load_labels`."""
    return [load_labels(name, embeddings, table) for name in columns if name is not None]


def positives(embeddings: Embeddings, similarity: str) -> NDArray[np.float32]:
    """float32 (N,): the similarity of each row's own pair."""
    return np.concatenate([own.astype(np.float32) for own in _positives(embeddings, similarity)])


def _positives(embeddings: Embeddings, similarity: str) -> Iterator[NDArray[np.float64]]:
    """p_i of some rows at a time: float32 rows, multiplied and added in float64."""
    n, cpu = embeddings.num_rows, torch.device("cpu")
    for start in range(0, n, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, n)
        x, y = (
            load_rows(side, start, stop, cpu, similarity == "cosine").double().numpy()
            for side in (embeddings.x, embeddings.y)
        )
        yield np.einsum("nd,nd->n", x, y)


def _repeats(codes: NDArray[np.int64]) -> bool:
    """Whether any two rows have the same code."""
    ordered = np.sort(codes[codes >= 0])
    return bool((ordered[1:] == ordered[:-1]).any())
