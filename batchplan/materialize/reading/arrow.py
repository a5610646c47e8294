"""Arrow IPC: files, and streams as `datasets` saves them. They are mapped, not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchplan.materialize.reading.kind import Kind

_MAGIC = b"ARROW1"


def describe(path: Path) -> tuple[pa.Schema, int]:
    with _opened(path) as (schema, blocks):
        return schema, sum(len(batch) for batch in blocks)


def batches(path: Path, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    with _opened(path) as (_, blocks):
        for batch in blocks:
            for start in range(0, len(batch), most):
                yield batch.select(schema.names).slice(start, most)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    with pa.memory_map(str(path)) as stream:
        is_file = stream.read(len(_MAGIC)) == _MAGIC
        stream.seek(0)
        reader = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        yield reader.schema, _blocks(reader) if is_file else iter(reader)


def _blocks(reader: Any) -> Iterator[pa.RecordBatch]:
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


KIND = Kind("Arrow", describe, batches)
