"""Arrow IPC: files, and streams as `datasets` saves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from batchplan.data.arrow import open_table
from batchplan.materialize.reading.kind import Kind


def describe(path: Path) -> tuple[pa.Schema, int]:
    with open_table(path) as file:
        return file.schema, file.num_rows


def batches(path: Path, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    with open_table(path) as file:
        yield from file.batches(schema.names, most)


KIND = Kind("Arrow", describe, batches)
