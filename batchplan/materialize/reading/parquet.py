"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.materialize.reading.kind import Kind


def describe(path: Path) -> tuple[pa.Schema, int]:
    with pq.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def batches(path: Path, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    # A small read buffer instead of pre-buffering: whole row groups need not be in memory.
    with pq.ParquetFile(
        path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
    ) as file:
        yield from file.iter_batches(most, columns=schema.names)


KIND = Kind("Parquet", describe, batches)
