"""Reads JSON lines, twice: the last line may have a column that the first one lacks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from batchplan.data.arrow_types import as_text
from batchplan.data.formats.tables import TableFile, TableFormat
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

_BLOCK = 4 << 20  # bytes of lines parsed at once


@contextmanager
def open_table(
    stream: pa.NativeFile, path: ShardPath, schema: pa.Schema | None = None
) -> Iterator[TableFile]:
    lines, count = io.BufferedReader(stream), 0

    def tables(columns: pa.Schema | None) -> Iterator[pa.Table]:
        lines.seek(0)
        before = 0
        while block := lines.readlines(_BLOCK):
            yield _parsed(b"".join(block), columns, f"{path}, after line {before}")
            before += len(block)

    if schema is None:
        schema = pa.schema([])
        for table in tables(None):
            # Pyarrow parses text that looks like a time.
            texts = pa.schema([field.with_type(as_text(field.type)) for field in table.schema])
            schema, count = merge(schema, texts), count + len(table)

    def batches(_names: Any, rows: int) -> Iterator[pa.RecordBatch]:
        for table in tables(schema):
            yield from table.to_batches(rows)

    yield TableFile(schema, count, batches)


def merge(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Return the columns of both schemas, with types that can hold the values of both."""
    return pa.unify_schemas([first, second], promote_options="permissive")


def with_columns(schema: pa.Schema) -> TableFormat:
    """Return the format of files with these columns. Values that a line lacks are null."""
    return TableFormat(FORMAT.name, partial(open_table, schema=schema))


def _parsed(block: bytes, schema: pa.Schema | None, where: str) -> pa.Table:
    options = pj.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer"
    )
    if not block.strip():
        return (schema or pa.schema([])).empty_table()
    reading = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        return pj.read_json(io.BytesIO(block), reading, options)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{where}: cannot be read as JSON lines ({error!s:.200}); expected one object per "
            "line, and values of one type in each column"
        ) from error


FORMAT = TableFormat("JSON lines", open_table)
