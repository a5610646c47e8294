"""Texts of some rows, for people to read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import is_text
from batchplan.data.columns import require_column
from batchplan.data.embeddings import Embeddings
from batchplan.data.labels import files_with, opened
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath
from batchplan.typing import Int64Array

_BATCH = 1 << 14  # texts decoded at once


def load_texts(
    column: str, embeddings: Embeddings, rows: Int64Array, table: str | Path | None = None
) -> dict[int, str]:
    """The texts of some rows, by row; null is empty.

    Args:
        column: name of a column of strings.
        embeddings: N rows. Without ``table`` the column is read from their own files.
        rows: int64 (n,), row numbers.
        table: a file with one row for each of the N rows, in the same order.

    Raises:
        InputError: as `batchplan.data.load_labels`; another type than strings.
    """
    texts: dict[int, str] = {}
    wanted, start = np.unique(rows), 0
    for path in files_with(column, embeddings, table):
        with opened(path) as file:
            _check(file.schema, column, path)
            for (values,) in file.columns([column], _BATCH):
                here = wanted[(start <= wanted) & (wanted < start + len(values))]
                taken = values.take(pa.array(here - start)).to_pylist()
                texts |= dict(zip(here.tolist(), (text or "" for text in taken), strict=True))
                start += len(values)
    if start != embeddings.num_rows:
        raise InputError(
            f"texts: column {column!r}: got {start} rows, expected {embeddings.num_rows}, one for "
            "each row of the data in the same order"
        )
    return texts


def _check(schema: pa.Schema, column: str, path: ShardPath) -> None:
    require_column(schema, column, str(path))
    kind = schema.field(column).type
    if not is_text(kind):
        raise InputError(f"{path} column {column!r}: got {kind}, expected strings as texts")


def text_columns(names: str | None) -> Sequence[str]:
    """Split the names of text columns at commas: those of x, y, then mined negatives. A single name
    is for both x and y.

    Raises:
        InputError: an empty name.
    """
    columns = [] if names is None else [name.strip() for name in names.split(",")]
    if not all(columns):
        raise InputError(
            f"text columns: got {names!r}, expected names separated by commas, such as "
            "question,answer"
        )
    return columns
