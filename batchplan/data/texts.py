"""Reads the texts of rows, to show them."""

import re
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import is_text, vector_type
from batchplan.data.embeddings import Embeddings
from batchplan.data.table_files import files_of, files_of_column, opened
from batchplan.data.wanted import is_negative, negatives_of
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath, located
from batchplan.typing import Int64Array

LABELS = ("label", "labels", "score", "scores", "dataset_name")  # columns that are no texts
_PAIR = "anchor", "positive"
_NO_TEXTS = {*LABELS, "group", "source", "split", "language", "url"}
_ID = re.compile(r"(?i:(.*[-_. ])?([qpd]|doc|uu)?id)|.*[a-z]I[dD]")  # query_id, _id, qid, docId


def likely_columns(
    embeddings: Embeddings, table: str | Path | None = None, others: Collection[str | None] = ()
) -> list[str]:
    """Return the columns that are likely the texts of x, of y and of mined negatives, as
    `text_columns`.

    These are ``anchor`` and ``positive`` if there are both, otherwise the first two columns of
    strings, or the first of each side if each has its own files with texts: for y the first whose
    texts are not those of x. Two columns change places if their names are in those of the vectors
    of the other side. Columns with names of labels, ids or sources are left out. Mined negatives
    are ``negative``, or ``negative_1`` and so on.

    Args:
        embeddings: the data, whose files have the columns.
        table: a file to look in instead.
        others: columns that are something else.

    Returns:
        The names, one if it is for both sides, "" for a side without texts; empty without such
        columns.

    Raises:
        InputError: a file cannot be read.
    """
    files = [files_of("x", embeddings), files_of("y", embeddings)]
    if table is not None:
        files = [[located(table)]]
    sides = 1 + (embeddings.paired and files[0] == files[-1])
    found = [_strings_in(paths, others, sides) for paths in files]
    if files[0] != files[-1]:
        x, y = ([name for name in found[side] if not is_negative(name)] for side in (0, -1))
        if x and y and not {*_PAIR} <= {*x, *y}:
            texts = _first_texts(files[0], x[0])
            other = (name for name in y if _first_texts(files[-1], name) != texts)
            return [x[0], next(other, y[0])]
        if embeddings.paired and len(x or y) == 1 and not (x and y):
            return [*x, "", *y]
        found[0] = list(dict.fromkeys(found[0] + found[-1]))
    columns = paired_columns(found[0], 1 + embeddings.paired, len(embeddings.negatives))
    of_x, of_y = _vectors_of(embeddings)
    if len(columns) > 1 and columns[1] in of_x and columns[0] in of_y:
        columns[:2] = columns[1::-1]
    return columns


def _first_texts(paths: Sequence[ShardPath], name: str) -> list[str | None]:
    """Return the first texts of a column, to compare it with others."""
    with opened(paths[0]) as file:
        return [
            text for (part,) in islice(file.columns([name], 64), 1) for text in part.to_pylist()
        ]


def _vectors_of(embeddings: Embeddings) -> tuple[str, str]:
    """Return the names of the vectors of x and y, "" if one file does not have both."""
    paths, origin = files_of("x", embeddings), embeddings.origin
    if not paths or origin is None or paths != files_of("y", embeddings):
        return "", ""
    with opened(paths[0]) as file:
        names = [field.name for field in file.schema if vector_type(field.type)]
    x, y = origin.wanted.x, origin.wanted.y
    others = (name for name in names if name not in (x, y) and not is_negative(name))
    return x or next(others, ""), y or next(others, "")


def paired_columns(names: Sequence[str], sides: int = 2, mined: int | None = None) -> list[str]:
    """Choose the columns of pairs among columns of texts: ``anchor`` and ``positive`` if both are
    there, otherwise the first ``sides``; then up to ``mined`` columns of mined negatives, None for
    all."""
    x = [name for name in names if not is_negative(name)]
    chosen = ([*_PAIR] if {*_PAIR} <= {*x} else x)[:sides]
    return chosen + negatives_of(names)[:mined] * (len(chosen) > 1)


def strings_of(schema: pa.Schema, others: Collection[str | None] = (), sides: int = 2) -> list[str]:
    """Return the columns of strings, without ``others``, and those with names of labels, ids or
    sources. Dictionaries, which may be categories, count if there are fewer others than sides, or
    if they have the name of a text."""
    names = [field.name for field in schema if is_text(field.type)]
    unwanted = {*_NO_TEXTS, *others, *filter(_ID.fullmatch, names)} - {*_PAIR}
    found = [name for name in names if names.count(name) == 1 and name not in unwanted]
    plain = [name for name in found if not pa.types.is_dictionary(schema.field(name).type)]
    if sum(not is_negative(name) for name in plain) < sides:
        return found
    return [name for name in found if name in (*plain, *_PAIR) or is_negative(name)]


def _strings_in(
    paths: Sequence[ShardPath], others: Collection[str | None], sides: int
) -> list[str]:
    """Return the columns of `strings_of` that all files have."""
    found: list[str] = []
    for number, path in enumerate(paths):
        with opened(path) as file:
            own = strings_of(file.schema, others, sides)
        found = [name for name in own if not number or name in found]
    return found


def load_texts(
    column: str,
    embeddings: Embeddings,
    rows: Int64Array,
    table: str | Path | None = None,
    sides: str = "xy",
) -> dict[int, str]:
    """Return the texts of the given rows by row number; null becomes an empty text.

    Args:
        column: name of a column of strings.
        embeddings: N rows. Without ``table`` the column is read from their own files.
        rows: int64 (n,), row numbers.
        table: a file with one row for each of the N rows, in the same order.
        sides: the sides whose files may have the column, the first one first.

    Raises:
        InputError: as `batchplan.data.load_labels`; another type than strings.
    """
    texts: dict[int, str] = {}
    wanted = np.unique(rows)
    files = files_of_column(column, embeddings, table, is_text, "strings as texts", sides)
    for piece in files.pieces([column]):
        here = wanted[(piece.start <= wanted) & (wanted < piece.stop)]
        taken = piece.columns[0].take(pa.array(here - piece.start)).to_pylist()
        texts |= dict(zip(here.tolist(), (text or "" for text in taken), strict=True))
    return texts


def text_columns(names: str) -> Sequence[str]:
    """Split the names of text columns at commas: of x, of y, then of mined negatives. A single name
    is for both x and y.

    Raises:
        InputError: an empty name.
    """
    columns = [name.strip() for name in names.split(",")]
    if not all(columns):
        raise InputError(
            f"text columns: got {names!r}, expected names separated by commas, such as "
            "question,answer"
        )
    return columns
