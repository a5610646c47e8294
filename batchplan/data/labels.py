"""Labels of rows (classes or groups), read from a Parquet column as integer codes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import encoded, label_type
from batchplan.data.candidates import Data
from batchplan.data.columns import read_type
from batchplan.data.formats.tables import TableFiles
from batchplan.data.id_files import check_rows, files_of
from batchplan.data.ids import arrow_from
from batchplan.data.table_files import checked, opened
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath, located
from batchplan.typing import Int64Array

_LABELS = "integers, strings or booleans"


def load_labels(column: str, embeddings: Data, table: str | Path | None = None) -> Int64Array:
    """Read the labels of all rows as codes, in order of first appearance.

    Args:
        column: name of a column of integers, strings or booleans; null means "no label".
        embeddings: N rows. Without ``table`` the column is read from their own files: those of x,
            or those of y if x lacks it.
        table: a Parquet file with one row for each of the N rows, in the same order.

    Returns:
        int64 (N,): codes from 0; -1 for a row without a label.

    Raises:
        InputError: there is no Parquet file, no such column, its type is another, or its number of
            rows is not N.
    """
    return _codes(read_labels(column, embeddings, table))


def read_labels(column: str, embeddings: Data, table: str | Path | None = None) -> pa.ChunkedArray:
    """Return the labels of all rows as dictionary arrays; arguments and errors as
    `load_labels`."""
    files = files_of_column(column, embeddings, table, label_type, f"{_LABELS} as labels")
    pieces = files.pieces([column])
    return pa.chunked_array([encoded(piece.columns[0], files.found[0]) for piece in pieces])


def files_of_column(
    column: str,
    embeddings: Data,
    table: str | Path | None,
    kind: Callable[[pa.DataType], Any],
    expected: str,
    sides: str = "xy",
) -> TableFiles[Any]:
    """Return the files that have a column with a value for each row of the data; arguments and
    errors as `read_type` and `files_with`.

    Raises:
        InputError: ``kind`` returns something else for another file, or there are more or fewer
            values.
    """
    paths = files_with(column, embeddings, table, sides)
    files = checked(
        paths, lambda file, path: read_type(file.schema, column, str(path), kind, expected)
    )
    files.alike(f" column {column!r}")
    # Before reading, since a small file may have a large column.
    _check_count(files.num_rows, embeddings.num_rows, f"{paths[0]} column {column!r}")
    return files


def files_with(
    column: str, embeddings: Data, table: str | Path | None, sides: str
) -> Sequence[ShardPath]:
    """Return the files that have a column; arguments as `load_labels`, and the sides to try, in
    order.

    Raises:
        InputError: the files of the embeddings have no columns.
    """
    if table is not None:
        check_rows(located(table), embeddings)
        return [located(table)]
    files = [files_of(side, embeddings) for side in sides]
    for paths in filter(None, files):
        with opened(paths[0]) as file:
            if column in file.schema.names:
                return paths
    if paths := files[1] or files[0]:
        return paths  # so that the reader says which columns there are
    raise InputError(
        f"labels: column {column!r}: the files of the embeddings hold no columns; give a Parquet "
        "file with one row for each of their rows as label_table (--label-table)"
    )


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
    _check_count(len(array), num_rows, where)
    return _codes(pa.chunked_array([encoded(array, array.type)]))


def _codes(values: pa.ChunkedArray) -> Int64Array:
    """Return the codes of what `encoded` returns. Dictionaries are joined in the order of their
    first values, so codes are in order of first appearance."""
    joined = values.unify_dictionaries().combine_chunks()
    return np.asarray(joined.indices.fill_null(-1), dtype=np.int64)


def _check_count(count: int, num_rows: int, where: str) -> None:
    if count != num_rows:
        raise InputError(
            f"{where}: got {count} values, expected {num_rows}, one for each row of the data "
            "in the same order"
        )
