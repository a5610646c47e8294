"""Known answers: which documents are right answers to which anchors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchplan.data.answer_options import AnswerOptions
from batchplan.data.candidates import Data
from batchplan.data.duplicates import document_codes, first_equals
from batchplan.data.embeddings import Embeddings
from batchplan.runtime import silent
from batchplan.typing import BoolArray, Int32Array, Int64Array


@dataclass(frozen=True, eq=False)
class Answers:
    """The known answers of the anchors of N rows with 1 + k documents each.

    Attributes:
        anchors: int64 (N,), from 0: the same number for the same anchor.
        documents: int64 (1 + k, N), from 0: the same number for the same document, of the positives
            and of mined negatives.
        pairs: int64 (E,), rising: ``anchor * width + document`` of each known pair. The pairs of
            all rows are known.
        width: more than any number of a document, and one that no document has.
        listed: int64 (L,), rising: the pairs that are no row's anchor and positive.
        missing: bool (k, N), mined negatives that do not exist, which have the number of the
            positive; None if all exist.
    """

    anchors: Int64Array
    documents: Int64Array
    pairs: Int64Array
    width: int
    listed: Int64Array
    missing: BoolArray | None = None

    @classmethod
    def of(
        cls,
        anchors: Int32Array | Int64Array,
        documents: Int32Array | Int64Array,
        more: tuple[Int64Array, Int64Array] | None = None,
        missing: BoolArray | None = None,
    ) -> "Answers":
        """Make the answers of rows, and of ``more`` pairs: their anchors and documents, (m,) each.

        Other arguments are the attributes.
        """
        anchors, documents = np.asarray(anchors, np.int64), np.asarray(documents, np.int64)
        width = 2 + int(max(documents.max(), -1 if more is None else more[1].max(initial=-1)))
        pairs, listed = distinct(anchors * width + documents[0]), np.empty(0, np.int64)
        if more is not None and len(more[0]):
            listed = distinct(more[0] * width + more[1])
            listed = listed[~is_in(listed, pairs)]
            pairs = np.sort(np.concatenate((pairs, listed)))
        return cls(anchors, documents, pairs, width, listed, missing)

    def take(self, rows: Int64Array) -> "Answers":
        """Return the answers among the given rows (n,), in the given order. Numbers become
        the first place of each anchor and each document."""
        anchors, documents = first_places(self.anchors[rows]), self.documents[:, rows]
        numbers = first_places(documents.ravel()).reshape(documents.shape)
        asked, found = self.sides(self.pairs)
        here = _places(asked, self.anchors[rows], anchors)
        there = _places(found, documents.ravel(), numbers.ravel())
        kept = (here >= 0) & (there >= 0)
        missing = None if self.missing is None else self.missing[:, rows]
        return Answers.of(anchors, numbers, (here[kept], there[kept]), missing)

    @cached_property
    def crossing(self) -> Int64Array:
        """int64 (F,): the pairs that separate rows whose anchors and positives all differ."""
        anchors, documents, width = self.anchors, self.documents, self.width
        asked, found = self.sides(self.pairs)
        own = np.ones(len(asked), np.bool_)
        own[np.searchsorted(self.pairs, self.listed)] = False
        met, has_met = found[own], own
        if len(documents) > 1:
            rows = distinct(anchors * width + documents)
            met, has_met = self.sides(rows)[1], is_in(self.pairs, rows)
        # Another anchor meets the document; and the anchor has a row with another positive, or the
        # other row has the document as a negative.
        others = np.bincount(met, minlength=width)[found] > has_met
        positives = np.bincount(asked[own], minlength=1 + int(asked[-1]))[asked]
        elsewhere = positives > own
        if len(documents) > 1:
            mined = np.zeros(width, np.bool_)
            mined[documents[1:].ravel()] = True
            elsewhere |= mined[found] & (positives > 0)
        return self.pairs[others & elsewhere]

    def sides(self, pairs: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the anchors and the documents of pairs. `np.divmod` takes 10 times as long."""
        asked = pairs // self.width
        return asked, pairs - asked * self.width

    def spans(self, pairs: Int64Array) -> Int64Array:
        """Return where the answers of each row's anchor start and stop in some of the pairs, which
        rise: int64 (2, N)."""
        counts = np.bincount(pairs // self.width, minlength=1 + int(self.anchors.max()))
        stops = np.cumsum(counts)
        return np.stack([(stops - counts)[self.anchors], stops[self.anchors]])

    @property
    def counts(self) -> Int64Array:
        """int64 (N,): the number of known answers of each row's anchor."""
        size = 1 + int(max(self.anchors.max(), self.pairs[-1] // self.width))
        return np.bincount(self.pairs // self.width, minlength=size)[self.anchors]

    @property
    def existing(self) -> Int64Array:
        """int64 (1 + k, N): the documents, ``width - 1`` for each that is missing."""
        found = self.documents.copy()
        if self.missing is not None:
            found[1:][self.missing] = self.width - 1
        return found

    @property
    def num_negatives(self) -> int:
        """Number of ordered pairs of different rows and a document of the second that is a known
        answer of the first: what a single batch of all rows would have."""
        asked, found = self.sides(self.pairs)
        documents = self.existing
        size = 1 + int(max(self.anchors.max(), asked.max(initial=0)))
        rows = np.bincount(self.anchors, minlength=size)[asked]
        met = rows @ np.bincount(documents.ravel(), minlength=self.width)[found]
        return int(met - is_in(self.anchors * self.width + documents, self.pairs).sum())


def answers_of(
    data: Data,
    options: AnswerOptions | None = None,
    *,
    equal: bool = True,
    advance: Callable[[int], None] = silent,
) -> Answers:
    """Return the known answers of the rows of the data.

    Rows with equal vectors on a side, or with the same id, have the same anchor or document there.

    Args:
        data: N rows. Lists of candidates show no equal rows.
        options: the columns of ids, and the list of more answers; None for neither.
        equal: whether to compare vectors.
        advance: called with the number of rows done.

    Raises:
        InputError: as `read_labels` and `read_known`.
    """
    anchors, documents = np.arange(data.num_rows), np.arange(data.num_rows)[None]
    if isinstance(data, Embeddings):
        if data.negatives:
            documents = np.arange(documents.size * (1 + len(data.negatives)))
            documents = documents.reshape(-1, data.num_rows)
        if equal:
            anchors = first_equals(data.x, advance)
            if data.negatives:
                hashes = document_codes([data.y, *data.negatives])
                documents = first_places(hashes.ravel()).reshape(hashes.shape)
            else:
                documents = (first_equals(data.y, advance) if data.paired else anchors)[None]
    missing = data.missing if isinstance(data, Embeddings) else None
    if options is None or not options.names_ids:
        return Answers.of(anchors, documents, missing=missing)
    from batchplan.data.known import Named  # data without ids need no Arrow

    if len(documents) == 1:  # mined negatives without vectors
        names = np.arange(data.num_rows * len(options.negative_id or ()))
        mined = 1 + int(documents.max()) + names.reshape(-1, data.num_rows)
        documents = np.concatenate((documents, mined))
    named = Named.read(data, options, len(documents))
    if missing is not None:
        named.documents[1:][missing] = -1  # files may pad ids
    anchors = _joined(anchors, named.anchors)
    documents = _joined(documents.ravel(), named.documents.ravel()).reshape(documents.shape)
    return Answers.of(anchors, documents, named.more(anchors, documents), missing)


def first_places(values: Int64Array) -> Int64Array:
    """Return the first place of each of the values (n,): int64 (n,)."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    places: Int64Array = first[inverse]
    return places


def distinct(values: Int64Array) -> Int64Array:
    """Return the values once each, rising. `np.unique` takes up to 50 times as long."""
    ordered = np.sort(values, axis=None)
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])])


def is_in(values: Int64Array, ordered: Int64Array) -> BoolArray:
    """Return whether each value is one of ``ordered``, which rises."""
    if not len(ordered):
        return np.zeros(values.shape, np.bool_)
    return np.asarray(ordered[np.searchsorted(ordered[:-1], values)] == values)


def _places(values: Int64Array, keys: Int64Array, numbers: Int64Array) -> Int64Array:
    """Return the number of the key that equals each value, -1 if there is none."""
    keys, first = np.unique(keys, return_index=True)
    place = np.searchsorted(keys[:-1], values)
    return np.where(keys[place] == values, numbers[first[place]], -1)


def _joined(numbers: Int64Array, ids: Int64Array) -> Int64Array:
    """Return numbers (n,) that are equal if ``numbers`` or ``ids`` are equal, directly or through
    other rows; an id of -1 is none."""
    named = np.flatnonzero(ids >= 0)
    if not len(named):
        return numbers
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = 1 + int(numbers.max())
    size = count + 1 + int(ids.max())
    links = np.ones(len(named), np.int8), (numbers[named], count + ids[named])
    groups = connected_components(coo_array(links, (size, size)), directed=False)[1]
    return first_places(groups[numbers].astype(np.int64))
