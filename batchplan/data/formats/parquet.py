"""Parquet shards."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.data.formats.tables import TableFile, TableFormat
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

_SMALL = 32 << 20  # bytes of a file whose column chunks may be read as a whole
_VALUES = 1 << 21  # decoded at a time, of each column; a row of lists may have any number


@contextmanager
def open_table(stream: pa.NativeFile, path: ShardPath) -> Iterator[TableFile]:
    # A small read buffer, so that column chunks need not be in memory as a whole. Small files go
    # without: Arrow enlarges the buffer to the size that a page states, up to 2 GB if damaged.
    # A request to an object store is worth more bytes.
    least = 1 << 20 if isinstance(path, Path) else 8 << 20
    buffer = 0 if stream.size() < _SMALL else least
    try:
        with pq.ParquetFile(
            stream, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
        ) as file:
            meta = file.metadata  # some files state no rows but in their row groups
            yield TableFile(
                file.schema_arrow,
                sum(meta.row_group(group).num_rows for group in range(meta.num_row_groups)),
                lambda columns, rows: file.iter_batches(
                    min(rows, _rows_at_once(file, columns, isinstance(path, Path))), columns=columns
                ),
            )
    except pa.ArrowInvalid as error:
        # Before pyarrow 26, a null among lists of a fixed size fails so (apache/arrow#35692).
        if re.search(r"all lists to be of size=\d+ but index \d+ had size=0", str(error)):
            raise InputError(
                f"{path}: got null, expected a vector in each row; fill or drop the row "
                "(pyarrow 26 says which)"
            ) from error
        raise


def _rows_at_once(file: pq.ParquetFile, columns: Sequence[str], local: bool) -> int:
    """Return the rows of which each column has at most `_VALUES` values, by the metadata.

    Raises:
        OSError: a column is encrypted. Its metadata would end the process, so a row is read first:
            of each group, or at a URL, where each read is a request, of the first.
    """
    meta = file.metadata
    for group in range(meta.num_row_groups if local else min(1, meta.num_row_groups)):
        next(file.iter_batches(1, row_groups=[group], columns=columns), None)
    wanted = [
        leaf
        for leaf in range(meta.num_columns)
        if meta.schema.column(leaf).path.partition(".")[0] in columns
    ]
    groups = filter(lambda group: group.num_rows, map(meta.row_group, range(meta.num_row_groups)))
    most = (
        -(-group.column(leaf).num_values // group.num_rows) for group in groups for leaf in wanted
    )
    return max(1, _VALUES // max(most, default=1))


FORMAT = TableFormat("Parquet", open_table)
