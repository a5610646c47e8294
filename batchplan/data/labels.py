"""Labels of rows (classes or groups), read from a Parquet column as integer codes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import encoded, label_type
from batchplan.data.candidates import Data
from batchplan.data.ids import arrow_from
from batchplan.data.table_files import check_count, files_of_column
from batchplan.typing import Int64Array

_LABELS = "integers, strings or booleans"


def load_labels(column: str, embeddings: Data, table: str | Path | None = None) -> Int64Array:
    """Read the labels of all rows as codes, in order of first appearance.

    Args:
        column: name of a column of integers, strings or booleans; null means "no label".
        embeddings: N rows. Without ``table`` the column is read from their own files: of x,
            or of y if x lacks it.
        table: a Parquet file with one row for each of the N rows, in the same order.

    Returns:
        int64 (N,): codes from 0; -1 for a row without a label.

    Raises:
        InputError: there is no Parquet file, no such column, its type is another, or its number of
            rows is not N.
    """
    return _codes(read_labels(column, embeddings, table))


def read_labels(
    column: str, embeddings: Data, table: str | Path | None = None, sides: str = "xy"
) -> pa.ChunkedArray:
    """Return the labels of all rows as dictionary arrays; arguments and errors as `load_labels`.
    Without ``table`` the files of the first of the ``sides`` that has the column are read."""
    files = files_of_column(column, embeddings, table, label_type, f"{_LABELS} as labels", sides)
    pieces = files.pieces([column])
    return pa.chunked_array([encoded(piece.columns[0], files.found[0]) for piece in pieces])


def source_codes(
    column: str | None, embeddings: Data, table: str | Path | None = None
) -> Int64Array | None:
    """int64 (N,): the source of each row, from 0; None without a column.

    Rows without a label share a source. Raises as `load_labels`.
    """
    if column is None:
        return None
    codes = load_labels(column, embeddings, table)
    return np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)


def labels_from(values: Any, num_rows: int, where: str = "labels") -> Int64Array:
    """Return the codes of labels in memory (NumPy, Arrow or a sequence), as `load_labels` returns
    them.

    Args:
        values: (num_rows,) integers, strings or booleans; None or an Arrow null is "no label".
        num_rows: N.
        where: the name of the values in messages.

    Raises:
        InputError: values of another type, or not ``num_rows`` of them.
    """
    array = arrow_from(values, label_type, where, f"expected {_LABELS}")
    check_count(len(array), num_rows, where)
    return _codes(pa.chunked_array([encoded(array, array.type)]))


def _codes(values: pa.ChunkedArray) -> Int64Array:
    """Return the codes of what `encoded` returns. Dictionaries are joined in the order of their
    first values, so codes are in order of first appearance."""
    joined = values.unify_dictionaries().combine_chunks()
    return np.asarray(joined.indices.fill_null(-1), dtype=np.int64)
