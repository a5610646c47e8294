"""The guard: which pairs of rows are too similar to be negatives.

Positive-aware mining (NV-Retriever: Moreira et al. 2024, arXiv 2407.15831) compares negatives of a
row with its positive, p_i = x_i . y_i. The *usual positive* is the median of all p_i, and q_i the
larger of it and p_i. The *ceiling* c_i of row i is

    q_i - |q_i| R   with a relative margin R (below q_i even if that is negative),
    q_i - M         with an absolute margin M, or
    C               with a maximum score C.

Without the usual positive, a row that is unlike its own pair could not share a batch with a quarter
of all rows, few of which are false negatives.

Two rows break the guard if

    (a) max(s_ij, s_ji) >= min(c_i, c_j), s_ij = x_i . y_j; or
    (b) they are in the same group; or
    (c) a document of one is a known answer of the anchor of the other. Each positive is a known
        answer of its anchor; so rows with equal x, or with equal y, break the guard.

If there is a *reference*, embeddings of the same rows by another model, s and p are its
similarities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.answer_options import AnswerOptions
from batchplan.data.answers import Answers, answers_of
from batchplan.data.candidates import Candidates, Data
from batchplan.data.duplicates import any_repeated, repeated_codes
from batchplan.data.labels import load_labels
from batchplan.data.reference import load_reference
from batchplan.data.rows import load_rows
from batchplan.guard.apart import Apart
from batchplan.guard.ceilings import ceilings_of, usual_positive, usual_rows
from batchplan.guard.options import GuardOptions
from batchplan.runtime import Runtime, silent
from batchplan.threads import in_blocks

_ROWS_AT_ONCE = 512  # their temporaries stay in the cache


@dataclass(frozen=True, eq=False)
class Guard:
    """Which rows must be in different batches, and must not be negatives of each other.

    Attributes:
        ceilings: float32 (N,), c_i; None if no similarity is too high.
        apart: the rows that must be in different batches at any cost.
        reference: N rows of another model, whose similarities are compared with the ceilings; None
            compares the similarities of the data.
    """

    ceilings: NDArray[np.float32] | None = None
    apart: Apart = field(default_factory=lambda: Apart.of((), None))
    reference: Embeddings | None = None

    @property
    def active(self) -> bool:
        """Whether it may forbid a pair of rows."""
        return self.ceilings is not None or self.apart.codes.size + self.apart.spans.size > 0

    def compiled(self) -> tuple[Apart, NDArray[np.float32]]:
        """Return ``apart``, and the ceilings, (0,) if there are none, for compiled code."""
        return self.apart, np.empty(0, np.float32) if self.ceilings is None else self.ceilings


def make_guard(
    embeddings: Data,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
    groups: Sequence[NDArray[np.int64]] = (),
    answers: Answers | None = None,
    usual: float | None = None,
    reference: Embeddings | None = None,
) -> Guard:
    """Make a guard in O(N d).

    Args:
        embeddings: N pairs of d dimensions; or lists of candidates, whose scores are the
            similarities.
        runtime: progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        relative_margin, absolute_margin, max_score: R, M or C; at most one.
        groups: codes (N,); rows with the same code must be in different batches; -1 is no group.
        answers: known answers; None allows all rows that groups allow.
        usual: the usual positive; None compares each row only with its own positive.
        reference: N rows of any dimension, whose similarities replace the data's.

    Raises:
        InputError: as `Embeddings.require_similarities`, if there are ceilings.
    """
    limits = relative_margin, absolute_margin, max_score
    apart = make_apart(groups, answers)
    if all(limit is None for limit in limits):
        return Guard(None, apart, reference)
    if isinstance(embeddings, Candidates):
        own: NDArray[Any] = embeddings.positive
    else:
        judge = embeddings if reference is None else reference
        judge.require_similarities(similarity)
        with runtime.stage("guard", embeddings.num_rows) as advance:
            own = positives(judge, similarity, advance)
    usual = -np.inf if usual is None else usual
    return Guard(ceilings_of(np.maximum(own, usual), *limits), apart, reference)


def make_apart(groups: Sequence[NDArray[np.int64]], answers: Answers | None) -> Apart:
    """Return the rows that groups and known answers separate; codes that repeat nowhere are left
    out."""
    codes = list(groups)
    if answers is not None:
        codes.append(repeated_codes(answers.anchors))
        if not np.array_equal(answers.anchors, answers.documents[0]):
            codes.append(repeated_codes(answers.documents[0]))
    return Apart.of([own for own in codes if any_repeated(own)], answers)


def guard_of(
    embeddings: Data, options: GuardOptions, runtime: Runtime, *, strict: bool = False
) -> Guard:
    """Make the guard that the options describe.

    Args:
        embeddings: N rows.
        options: limit, groups, known answers and reference.
        runtime: progress.
        strict: compare each row only with its own positive, for mining of negatives.

    Raises:
        InputError: no such group column, a zero row under cosine, products that overflow float32,
            or as `load_reference`.
    """
    reference = None
    if not isinstance(embeddings, Candidates):
        reference = load_reference(options, embeddings, runtime)
    groups = group_codes(embeddings, options.label_table, options.group_column)
    usual = None if strict else usual_of(embeddings, options, reference)
    answers = known_answers(embeddings, options, runtime)
    return make_guard(
        embeddings, runtime, **options.limits(), groups=groups, answers=answers, usual=usual,
        reference=reference,
    )  # fmt: skip


def known_answers(
    embeddings: Data, options: AnswerOptions, runtime: Runtime, *, equal: bool | None = None
) -> Answers | None:
    """Return the known answers that a guard with these options looks up; None if it has none.

    Args:
        equal: whether equal vectors are the same anchor or document; None if the guard is on.

    Raises:
        InputError: as `answers_of`.
    """
    equal = bool(getattr(options, "guard", True)) if equal is None else equal
    if not (equal or options.names_ids):
        return None
    sides = 1 + embeddings.paired if equal and isinstance(embeddings, Embeddings) else 0
    with runtime.stage("answers", embeddings.num_rows * sides) as advance:
        return answers_of(embeddings, options, equal=equal, advance=advance)


def usual_of(
    embeddings: Data, options: GuardOptions, reference: Embeddings | None = None
) -> float | None:
    """Return the usual positive of the reference if there is one, else of the data; None if no
    limit depends on it."""
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
    """Return codes (N,) of each named column; raises as `load_labels`."""
    return [load_labels(name, embeddings, table) for name in columns if name is not None]


def positives(
    embeddings: Embeddings, similarity: str, advance: Callable[[int], None] = silent
) -> NDArray[np.float64]:
    """float64 (N,): the similarity p_i of each row's own pair, from float32 rows. ``advance`` is
    called with the number of rows done."""
    n, cpu = embeddings.num_rows, torch.device("cpu")
    out = np.empty(n)

    def work(start: int, stop: int) -> None:
        x, y = (
            load_rows(side, start, stop, cpu, similarity == "cosine").double().numpy()
            for side in (embeddings.x, embeddings.y)
        )
        out[start:stop] = np.einsum("nd,nd->n", x, y)

    in_blocks(work, n, _ROWS_AT_ONCE, advance)
    return out
