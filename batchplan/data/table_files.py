"""Opens files with columns, whatever their format."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from batchplan.data.formats import format_of, has_columns, parquet
from batchplan.data.formats.tables import TableFile, TableFiles, TableFormat
from batchplan.files.remote import ShardPath

T = TypeVar("T")


def table_format(path: ShardPath) -> TableFormat:
    """Return the format of a file with columns. An unknown suffix is read as Parquet."""
    form = format_of(path) if has_columns(path) else None
    return form if isinstance(form, TableFormat) else parquet.FORMAT


def opened(path: ShardPath) -> AbstractContextManager[TableFile]:
    """Open a file with columns, as `table_format` says."""
    return table_format(path).opened(path)


def checked(
    paths: Sequence[ShardPath], check: Callable[[TableFile, ShardPath], T]
) -> TableFiles[T]:
    """Return files of one format; arguments and errors as `TableFiles.of`."""
    return TableFiles.of(paths, check, table_format(paths[0]))
