"""Reads ids of anchors and documents, and lists of known answers: Parquet, or the field's qrels."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from batchplan.data.answer_options import AnswerOptions
from batchplan.data.arrow_types import id_type, label_type
from batchplan.data.candidates import Data
from batchplan.data.formats import parquet
from batchplan.data.labels import read_labels
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath, located, opened_file
from batchplan.typing import Int64Array

_SCORE = "score"  # the name of a third column, or relevance: 0 or less is no answer
_TEXTS = pa.large_string(), pa.large_binary()  # of ids that are no numbers
_ROWS_AT_ONCE = 1 << 16
_FORMATS = (
    "expected a Parquet file whose first two columns are ids of anchors and of documents; lines "
    "of query-id, corpus-id and score with a header, separated by tabs; or lines of qrels: query, "
    "iteration, document and relevance"
)


@dataclass(frozen=True, eq=False)
class Named:
    """The ids of rows, and pairs of ids.

    Attributes:
        anchors: int64 (N,), a code for each id, -1 for none.
        documents: int64 (1 + k, N), the same of the documents.
        pairs: int64 (2, m): the code of the anchor and of the document of each listed answer.
    """

    anchors: Int64Array
    documents: Int64Array
    pairs: Int64Array

    @classmethod
    def read(cls, data: Data, options: AnswerOptions, count: int) -> "Named":
        """Read what the options name.

        Args:
            data: N rows with ``count`` documents each.

        Raises:
            InputError: as `read_labels` and `read_known`; or not one column for each negative.
        """
        negatives: list[str | None] = [*(options.negative_id or [])]
        if len(negatives) not in (0, count - 1):
            raise InputError(
                f"negative id: got {len(negatives)} columns, expected {count - 1}, one for each "
                "mined negative of a row; or leave it out"
            )

        def ids(column: str | None, sides: str = "yx") -> pa.Array:
            if column is None:
                return pa.nulls(data.num_rows, pa.large_string())
            return texts_of(read_labels(column, data, options.label_table, sides))

        columns = [ids(options.positive_id)]
        columns += map(ids, negatives or [None] * (count - 1))
        asked, found = ids(options.anchor_id, "xy"), pa.concat_arrays(columns)
        listed = (pa.array([], pa.large_string()),) * 2
        if options.known is not None:
            listed = read_known(located(options.known))
        (anchors, first), (documents, second) = map(_codes, (asked, found), listed)
        pairs = np.stack([first, second])
        for side, own, codes, others in zip(
            ("anchors", "documents"), (asked, found), pairs, listed, strict=True
        ):
            if len(codes) and codes.max() < 0:
                _warn_of_other_ids(f"{options.known}: none of its {side}", own, others)
        return cls(anchors, documents.reshape(count, -1), pairs[:, (pairs >= 0).all(axis=0)])

    def more(self, anchors: Int64Array, documents: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the listed pairs by the given numbers of the anchors (N,) and documents."""
        sides = ((anchors, self.anchors), (documents.ravel(), self.documents.ravel()))
        asked, found = (
            _number_of(codes, numbers)[pairs]
            for (numbers, codes), pairs in zip(sides, self.pairs, strict=True)
        )
        return asked, found


def _warn_of_other_ids(which: str, own: pa.Array, listed: pa.Array) -> None:
    rows = str(own.drop_null()[:1].to_pylist())[1:-1] or "none"
    warnings.warn(
        f"{which} is one of the rows (it has {listed[0].as_py()!r:.80}, the rows have {rows:.80}), "
        "so its answers change nothing; write ids as the rows have them, the anchor's first",
        stacklevel=3,
    )


def texts_of(labels: pa.ChunkedArray) -> pa.Array:
    """Return labels of `read_labels` as large_string (N,)."""
    parts = [part.dictionary_decode().cast(pa.large_string()) for part in labels.chunks]
    return pa.concat_arrays(parts)


def read_known(path: ShardPath) -> tuple[pa.Array, pa.Array]:
    """Read the answers of a list: large_string (m,) ids of anchors, and of documents.

    Raises:
        InputError: the file cannot be read, or has another format; names the line.
    """
    if path.suffix.lower() == ".parquet":
        return _from_parquet(path)
    with opened_file(path, "known answers") as stream:
        head = stream.readline(1 << 16).decode("utf-8", "replace").rstrip("\r\n")
    tab = "\t" in head
    fields = head.split("\t") if tab else head.split(" ")
    if len(fields) not in (3, 4) or not (tab or len(fields) == 4):
        raise InputError(f"{path}: got {head[:80]!r} as the first line, {_FORMATS}")
    beir = len(fields) == 3
    names = ["query", "document", _SCORE] if beir else ["query", "iteration", "document", _SCORE]
    try:
        with opened_file(path, "known answers") as stream:
            table = pa.csv.read_csv(
                stream,
                pa.csv.ReadOptions(
                    column_names=names, skip_rows=int(beir and not _is_number(fields[2]))
                ),
                pa.csv.ParseOptions(delimiter="\t" if tab else " ", quote_char=False),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.large_string()) | {_SCORE: pa.float64()},
                    strings_can_be_null=False,
                ),
            )
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {str(error).partition(chr(10))[0]}; {_FORMATS}") from None
    return _answers(table["query"], table["document"], table[_SCORE])


def _from_parquet(path: ShardPath) -> tuple[pa.Array, pa.Array]:
    with parquet.FORMAT.opened(path) as file:
        names = file.schema.names
        if len(names) < 2:
            raise InputError(f"{path}: got the columns {', '.join(names)}, {_FORMATS}")
        chosen = [*names[:2], *(name for name in (_SCORE, "relevance") if name in names[2:])][:3]
        for name, expected in zip(chosen, ("ids", "ids", "numbers"), strict=False):
            kind = file.schema.field(name).type
            read_as = label_type(kind) if expected == "ids" else id_type(kind)
            if read_as is None or (expected == "numbers" and read_as in _TEXTS):
                raise InputError(
                    f"{path} column {name!r}: got {kind}, expected {expected}; {_FORMATS}"
                )
        parts = list(file.columns(chosen, _ROWS_AT_ONCE))
    if not parts:
        return pa.array([], pa.large_string()), pa.array([], pa.large_string())
    return _answers(*(pa.chunked_array(column) for column in zip(*parts, strict=True)))


def _answers(asked: Any, found: Any, scores: Any = None) -> tuple[pa.Array, pa.Array]:
    """Return the pairs whose score is above 0, without nulls."""
    kept = pc.and_(pc.is_valid(asked), pc.is_valid(found))
    if scores is not None:
        kept = pc.and_(kept, pc.fill_null(pc.greater(scores, 0), False))
    first, second = (
        pc.filter(values, kept).cast(pa.large_string()).combine_chunks()
        for values in (asked, found)
    )
    return first, second


def _codes(ids: pa.Array, listed: pa.Array) -> list[Int64Array]:
    """Return a code for each id, -1 for null, and for each listed id, -1 if no row has it."""
    both = pa.chunked_array([ids, listed]).dictionary_encode()  # one dictionary, ids come first
    codes = np.concatenate([part.indices.fill_null(-1).to_numpy() for part in both.chunks])
    codes, rows = codes.astype(np.int64), len(ids)
    codes[rows:][codes[rows:] > codes[:rows].max(initial=-1)] = -1
    return np.split(codes, [rows])


def _number_of(codes: Int64Array, numbers: Int64Array) -> Int64Array:
    """Return the number of the rows with each code."""
    out = np.zeros(1 + int(codes.max(initial=-1)), np.int64)
    named = codes >= 0
    out[codes[named]] = numbers[named]
    return out


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
