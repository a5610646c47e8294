"""Which rows must be in different batches at any cost: by codes, and by known answers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from batchplan.data.answers import Answers
from batchplan.kernels import njit
from batchplan.typing import Int32Array, Int64Array


class Apart(NamedTuple):
    """The rows that must be in different batches, for compiled code. All arrays are int32.

    Known answers are looked up, so that a document with many anchors costs no list of their pairs.

    Attributes:
        codes: (C, N): rows with the same code of 0 or more.
        spans: (N, 2), where the known answers of each row's anchor start and stop in ``answers``;
            (0, 2) without any.
        answers: (A,), documents, numbered from 0, rising in each span.
        documents: (1 + k, N), the documents of each row, -1 if no other anchor asks for it.
    """

    codes: Int32Array
    spans: Int32Array
    answers: Int32Array
    documents: Int32Array

    @classmethod
    def of(cls, codes: Sequence[Int64Array], answers: Answers | None) -> "Apart":
        """Return the rows with equal codes, (N,) each, and with answers beyond equal rows."""
        stacked = np.empty((len(codes), len(codes[0]) if len(codes) else 0), np.int32)
        for own, given in zip(stacked, codes, strict=True):
            own[:] = given
        pairs = np.empty(0, np.int64) if answers is None else answers.crossing
        if answers is None or not len(pairs):
            nothing = (np.empty(shape, np.int32) for shape in ((0, 2), 0, (1, 0)))
            return cls(stacked, *nothing)
        spans = np.ascontiguousarray(answers.spans(pairs).T, np.int32)
        found = answers.sides(pairs)[1]
        asked = np.zeros(answers.width, np.bool_)
        asked[found] = True
        numbers = np.where(asked, np.cumsum(asked) - 1, -1).astype(np.int32)
        return cls(stacked, spans, numbers[found], numbers[answers.documents])

    def take(self, rows: Int64Array) -> "Apart":
        """Return what separates the given rows (n,), in the given order."""
        codes = np.take(self.codes, rows, axis=1) if len(self.codes) else self.codes
        if not len(self.spans):
            return self._replace(codes=codes)
        spans = np.take(self.spans, rows, axis=0)  # faster than an index
        return Apart(codes, spans, self.answers, np.take(self.documents, rows, axis=1))


@njit
def apart(i, j, rows):  # type: ignore[no-untyped-def]
    """Return whether rows i and j must be in different batches, by `Apart`."""
    codes = rows.codes  # no views of its rows, which would be slow
    for c in range(codes.shape[0]):
        if codes[c, i] >= 0 and codes[c, i] == codes[c, j]:
            return True
    return rows.spans.size > 0 and (answers(i, j, rows) or answers(j, i, rows))


@njit
def answers(i, j, rows):  # type: ignore[no-untyped-def]
    """Return whether a document of row j is a known answer of the anchor of row i."""
    start, stop = rows.spans[i, 0], rows.spans[i, 1]
    if start == stop:
        return False
    for c in range(rows.documents.shape[0]):
        document, low, high = rows.documents[c, j], start, stop
        if document < 0:
            continue
        while low < high:
            middle = (low + high) >> 1
            if rows.answers[middle] < document:
                low = middle + 1
            else:
                high = middle
        if low < stop and rows.answers[low] == document:
            return True
    return False


def separated(rows: tuple[torch.Tensor, ...], i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """bool (E,): `apart` for rows i and j, (E,), from the arrays of `Apart` on their device."""
    codes, spans, answered, documents = rows
    out = torch.zeros(len(i), dtype=torch.bool, device=i.device)
    for own in codes:
        out |= (own[i] == own[j]) & (own[i] >= 0)
    if not len(spans):
        return out
    longest = int((spans[:, 1] - spans[:, 0]).max())
    for asking, other in ((i, j), (j, i)):
        start, stop = spans[asking].long().unbind(1)
        for own in documents:
            document, low, high = own[other], start, stop
            for _ in range(longest.bit_length()):
                middle = (low + high) >> 1
                below = (middle < high) & (answered[middle.clamp(max=len(answered) - 1)] < document)
                low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
            found = answered[low.clamp(max=len(answered) - 1)] == document
            out |= found & (low < stop) & (document >= 0)
    return out
