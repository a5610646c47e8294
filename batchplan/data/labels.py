"""Labels of the rows, classes or groups, read from a Parquet column as integer codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from batchplan.data import parquet
from batchplan.data.columns import require_column
from batchplan.data.embeddings import Embeddings
from batchplan.data.formats import format_of
from batchplan.data.ids import id_type
from batchplan.data.tables import TableFile, TableFormat
from batchplan.errors import InputError

_BATCH = 1 << 16  # labels decoded at once
_EXPECTED = "expected integers, strings or booleans"


def load_labels(
    column: str, embeddings: Embeddings, table: str | Path | None = None
) -> NDArray[np.int64]:
    """The labels of all rows: equal values get equal codes, numbered as they first appear.

    Args:
        column: name of a column of integers, strings or booleans; nulls mean "no label".
        embeddings: N rows. Without ``table`` the column is read from their Parquet files: from
            those of x, or, where these lack it, from those of y.
        table: a Parquet file with one row for each of the N rows, in their order.

    Returns:
        int64 (N,): 0 for the value of the first labelled row and so on, -1 where there is none.

    Raises:
        InputError: no Parquet file to read from, no such column, one of another type, or another
            number of rows than N.
    """
    if table is not None:
        return _labels([Path(table)], column, embeddings.num_rows)
    sides = [paths for paths in map(partial(_tables, embeddings), "xy") if paths]
    for paths in sides:
        with _opened(paths[0]) as file:
            found = column in file.schema.names
        if found or paths is sides[-1]:
            return _labels(paths, column, embeddings.num_rows)
    raise InputError(
        f"labels: column {column!r}: the files of the embeddings hold no columns; give a Parquet "
        "file with one row for each of their rows as label_table (--label-table)"
    )


def source_codes(
    column: str | None, embeddings: Embeddings, table: str | Path | None = None
) -> NDArray[np.int64] | None:
    """int64 (N,): the source of each row, from 0 on; rows that name none are a source of their own.
    None without a column. Raises as `load_labels`."""
    if column is None:
        return None
    codes = load_labels(column, embeddings, table)
    return np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)


def labels_from(values: Any, num_rows: int, where: str = "labels") -> NDArray[np.int64]:
    """`load_labels` of values in memory: NumPy, Arrow or a sequence.

    Args:
        values: (num_rows,) integers, strings or booleans; None or an Arrow null is "no label".
        num_rows: N.
        where: what the values are, for messages.

    Raises:
        InputError: of another type, or not ``num_rows`` of them.
    """
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        if (kept := _label_type(array.type)) is None:
            raise InputError(f"{where}: got labels of {array.type}, {_EXPECTED}")
        array = array.cast(kept)
    except InputError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{where}: got {type(values).__name__} ({reason}), {_EXPECTED}") from error
    _check_count(len(array), num_rows, where)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    # dictionary_encode numbers values as they first appear, and leaves nulls null.
    codes = array.dictionary_encode().indices.fill_null(-1)
    return np.asarray(codes, dtype=np.int64)


def _tables(embeddings: Embeddings, side: str) -> list[Path]:
    """The files of a side, none where they have no columns."""
    paths = [Path(shard.path) for shard in embeddings.shards if side in shard.side]
    return paths if all(isinstance(format_of(path), TableFormat) for path in paths) else []


def _opened(path: Path) -> AbstractContextManager[TableFile]:
    """An open file with columns; one of unknown suffix is taken for Parquet."""
    form = format_of(path)
    return (form if isinstance(form, TableFormat) else parquet.FORMAT).opened(path)


def _labels(paths: Sequence[Path], column: str, num_rows: int) -> NDArray[np.int64]:
    """The labels of all files, in order."""
    with _opened(paths[0]) as file:
        kept = _checked_type(file.schema, column, paths[0])
    # Before it is read: a small file may hold a column that is large.
    _check_count(sum(map(_rows, paths)), num_rows, str(paths[0]))
    chunks = [chunk for path in paths for chunk in _chunks(path, column, kept, paths[0])]
    return labels_from(pa.chunked_array(chunks, kept), num_rows, str(paths[0]))


def _rows(path: Path) -> int:
    with _opened(path) as file:
        return file.num_rows


def _check_count(count: int, num_rows: int, where: str) -> None:
    if count != num_rows:
        raise InputError(
            f"{where}: got {count} labels, expected {num_rows}, one for each row of the data "
            "in the same order"
        )


def _chunks(path: Path, column: str, kept: pa.DataType, first: Path) -> Iterator[pa.Array]:
    with _opened(path) as file:
        found = _checked_type(file.schema, column, path)
        if found != kept:
            raise InputError(
                f"{path} column {column!r}: got {found}, expected {kept} as in {first}; the shards "
                "of one side must be alike"
            )
        for (values,) in file.columns([column], _BATCH):
            yield values.cast(kept)


def _checked_type(schema: pa.Schema, column: str, path: Path) -> pa.DataType:
    require_column(schema, column, str(path))
    given = schema.field(column).type
    if (kept := _label_type(given)) is None:
        raise InputError(f"{path} column {column!r}: got {given}, {_EXPECTED} as labels")
    return kept


def _label_type(given: pa.DataType) -> pa.DataType | None:
    return given if pa.types.is_boolean(given) else id_type(given)
