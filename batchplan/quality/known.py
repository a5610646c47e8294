"""Finds and counts known answers among the negatives of a plan."""

import os
from dataclasses import dataclass

import numpy as np

from batchplan.data.answer_options import ANSWER_OPTIONS, AnswerOptions
from batchplan.data.answers import Answers, is_in
from batchplan.kernels import njit
from batchplan.plans import Plan
from batchplan.text import as_flags
from batchplan.typing import BoolArray, Int64Array

_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class KnownNegative:
    """A known answer of a row that is among its negatives.

    Attributes:
        row: the row of the anchor.
        other: the row of the document.
        document: 0 if it is the positive of that row, else the number of its mined negative.
        negatives: how many known answers the anchor meets as negatives in this batch.
    """

    row: int
    other: int
    document: int
    negatives: int


@dataclass(frozen=True, kw_only=True)
class AnswerReport:
    """The known answers among the negatives from anchors to documents.

    Attributes:
        negatives: pairs of an anchor and a document of another row of its batch.
        known: those that are known answers.
        share: their share; None without negatives.
        share_random: its expectation for random batches.
        several: rows whose anchor has more than one known answer.
        examples: up to ten rows, those with the most such negatives first.
        planned_with: the options of ids and known answers that the plan has, but not its judge, as
            a command spells them.
    """

    negatives: int
    known: int
    share: float | None
    share_random: float
    several: int
    examples: list[KnownNegative]
    planned_with: list[str]


class KnownPairs:
    """Looks up which rows have a known answer of each other's anchor.

    Args:
        answers: of all N rows. Rows with equal anchors or equal positives may be left out.
    """

    def __init__(self, answers: Answers) -> None:
        pairs, width = answers.crossing, answers.width
        self._spans = answers.spans(pairs)
        self._answered, self._documents = pairs % width, answers.documents

    def __bool__(self) -> bool:
        return len(self._answered) > 0

    def met(self, rows: Int64Array, columns: Int64Array) -> BoolArray:
        """Return whether a document of one row is a known answer of the anchor of the other: bool
        (..., R, C).

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows.
        """
        out = np.zeros((*rows.shape, columns.shape[-1]), np.bool_)
        tiles = out.reshape(-1, *out.shape[-2:])
        sides = [np.ascontiguousarray(own).reshape(len(tiles), -1) for own in (rows, columns)]
        for flip in (False, True):
            askers, others = sides[::-1] if flip else sides
            _mark(askers, others, self._spans, self._answered, self._documents, flip, tiles)
        return out


def known_negatives(
    plan: Plan, answers: Answers, options: AnswerOptions | None = None
) -> AnswerReport:
    """Count the known answers that the anchors of a plan meet as negatives.

    Args:
        plan: of the N rows of the answers.
        options: by which the answers are known; None if nobody asks whether the plan had others.
    """
    rows, offsets, documents = plan.rows, plan.batch_offsets, answers.existing
    first = answers.anchors * answers.width
    spans = answers.spans(answers.pairs)
    counts = _count(rows.copy(), offsets.copy(), spans, answers.pairs % answers.width, documents)
    sizes, exist = np.diff(offsets), (documents < answers.width - 1).sum(axis=0)
    negatives = int(np.repeat(sizes - 1, sizes) @ exist[rows])
    known = int(counts.sum())
    worst = np.argsort(-counts, kind="stable")[: min(_EXAMPLES, np.count_nonzero(counts))]
    examples = []
    for entry in worst.tolist():
        batch = int(np.searchsorted(offsets, entry, side="right")) - 1
        others = np.delete(rows[offsets[batch] : offsets[batch + 1]], entry - offsets[batch])
        met = is_in(first[rows[entry]] + documents[:, others], answers.pairs)
        place, document = divmod(int(met.T.argmax()), len(documents))
        row, other, count = int(rows[entry]), int(others[place]), int(counts[entry])
        found = KnownNegative(row=row, other=other, document=document, negatives=count)
        examples.append(found)
    return AnswerReport(
        negatives=negatives,
        known=known,
        share=known / negatives if negatives else None,
        share_random=answers.num_negatives / (int(exist.sum()) * (len(exist) - 1)),
        several=int((answers.counts > 1).sum()),
        examples=examples,
        planned_with=[] if options is None else _planned_with(plan, options),
    )


def _planned_with(plan: Plan, options: AnswerOptions) -> list[str]:
    """Return ``planned_with`` of the report. A file of known answers may have moved, so only its
    name counts; a label table counts only with the ids that it has."""
    planned = {n: value for n in ANSWER_OPTIONS if (value := plan.metadata.options.get(n))}
    table = planned.pop("label_table", None)
    unlike = {name: value for name, value in planned.items() if value != getattr(options, name)}
    if os.path.basename(str(planned.get("known"))) == os.path.basename(str(options.known)):
        unlike.pop("known", None)
    if unlike and table:
        unlike["label_table"] = table
    return as_flags(unlike)


@njit
def _mark(askers, others, spans, answered, documents, flip, out):  # type: ignore[no-untyped-def]
    """Mark the known answers of ``askers``, int64 (b, R), among the documents of ``others``, int64
    (b, C), in bool (b, R, C), or (b, C, R) if ``flip``. Of the answers and the documents, the more
    are looked up."""
    each = documents.shape[0]
    held = np.empty(others.shape[1] * each, np.int64)
    for b in range(askers.shape[0]):
        for k in range(held.size):
            held[k] = documents[k % each, others[b, k // each]]
        order = np.argsort(held)
        ordered = held[order]
        for r in range(askers.shape[1]):
            asked = answered[spans[0, askers[b, r]] : spans[1, askers[b, r]]]
            few = asked.size <= held.size
            for value in asked if few else held:
                if not few and asked[min(np.searchsorted(asked, value), asked.size - 1)] != value:
                    continue
                place = np.searchsorted(ordered, value)
                while place < held.size and ordered[place] == value:
                    c = order[place] // each
                    if flip:
                        out[b, c, r] = True
                    else:
                        out[b, r, c] = True
                    place += 1


@njit
def _count(rows, offsets, spans, answered, documents):  # type: ignore[no-untyped-def]
    """For each entry, the documents of other rows of its batch that answer its anchor: int64
    (entries,). All documents of a batch are counted, so the time does not grow with its square."""
    met = np.zeros(max(documents.max(), answered.max()) + 1, np.int64)
    out = np.zeros(rows.size, np.int64)
    for batch in range(offsets.size - 1):
        places = range(offsets[batch], offsets[batch + 1])
        for place in places:
            for c in range(documents.shape[0]):
                met[documents[c, rows[place]]] += 1
        for place in places:
            row = rows[place]
            for c in range(documents.shape[0]):
                met[documents[c, row]] -= 1
            for k in range(spans[0, row], spans[1, row]):
                out[place] += met[answered[k]]
            for c in range(documents.shape[0]):
                met[documents[c, row]] += 1
        for place in places:
            for c in range(documents.shape[0]):
                met[documents[c, rows[place]]] = 0
    return out
