"""JSON lines: read twice, since the last line may hold what the first lacks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from batchplan.errors import InputError
from batchplan.materialize.reading.kind import Kind

_BLOCK = 4 << 20  # bytes of lines parsed at once


def describe(path: Path) -> tuple[pa.Schema, int]:
    schema, count = pa.schema([]), 0
    for block, line in _blocks(path):
        table = _parsed(block, None, path, line)
        schema = merge(schema, _with_text(table.schema))
        count += len(table)
    return schema, count


def batches(path: Path, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    for block, line in _blocks(path):
        yield from _parsed(block, schema, path, line).to_batches(most)


def merge(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Columns of both, of types that hold the values of both."""
    return pa.unify_schemas([first, second], promote_options="permissive")


def _blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Whole lines of some megabytes, and the number of lines before them."""
    line = 0
    with path.open("rb") as stream:
        while lines := stream.readlines(_BLOCK):
            yield b"".join(lines), line
            line += len(lines)


def _parsed(block: bytes, schema: pa.Schema | None, path: Path, line: int) -> pa.Table:
    options = pj.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer"
    )
    if not block.strip():
        return (schema or pa.schema([])).empty_table()
    try:
        return pj.read_json(
            io.BytesIO(block),
            pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            options,
        )
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}, after line {line}: cannot be read as JSON lines ({error!s:.200}); expected "
            "one object per line, and values of one type in each column"
        ) from error


def _with_text(schema: pa.Schema) -> pa.Schema:
    """Text that looks like a time stays text."""
    return pa.schema([pa.field(field.name, _as_text(field.type)) for field in schema])


def _as_text(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type):
        return pa.string()
    if pa.types.is_list(data_type):
        return pa.list_(_as_text(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _as_text(field.type)) for field in data_type])
    return data_type


KIND = Kind("JSON lines", describe, batches, merge)
