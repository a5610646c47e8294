"""Parquet shards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from batchplan.data.tables import TableFile, TableFormat

_SMALL = 32 << 20  # bytes of a file whose column chunks may be in memory whole


@contextmanager
def open_table(path: Path) -> Iterator[TableFile]:
    # A small read buffer instead of pre-buffering: whole column chunks need not be in memory.
    # Not for small files, though: Arrow makes room in it for what a page claims, which where the
    # page is damaged may be 2 GB.
    buffer = 0 if path.stat().st_size < _SMALL else 1 << 20
    with pq.ParquetFile(
        path, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
    ) as file:
        yield TableFile(
            file.schema_arrow,
            file.metadata.num_rows,
            lambda columns, rows: file.iter_batches(rows, columns=columns),
        )


FORMAT = TableFormat("Parquet", open_table)
