"""Arrow IPC: files, and streams as `datasets` saves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from batchplan.data.arrow import open_table
from batchplan.data.tables import TableFile
from batchplan.materialize.reading.kind import Kind


def describe(path: Path) -> tuple[pa.Schema, int]:
    with _opened(path) as file:
        return file.schema, file.num_rows


def batches(path: Path, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    with _opened(path) as file:
        yield from file.batches(schema.names, most)


@contextmanager
def _opened(path: Path) -> Iterator[TableFile]:
    with pa.memory_map(str(path)) as stream, open_table(stream, path) as file:
        yield file


KIND = Kind("Arrow", describe, batches)
