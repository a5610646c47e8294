"""Reads JSON lines, twice: the last line may have a column that the first one lacks."""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from batchplan.data.arrow_types import as_text
from batchplan.data.formats.tables import TableFile, TableFormat
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

_BLOCK = 4 << 20  # bytes of lines parsed at once
_NAMES, _VALUES = 50_000, 8 << 20  # parsed at once
_MOST_COLUMNS = 10_000


@contextmanager
def open_table(
    stream: pa.NativeFile, path: ShardPath, schema: pa.Schema | None = None
) -> Iterator[TableFile]:
    lines, count = io.BufferedReader(stream), 0

    def tables(columns: pa.Schema | None) -> Iterator[pa.Table]:
        lines.seek(0)
        before = 0
        while block := lines.readlines(_BLOCK):
            for some in _parts(block, len(columns or ())):
                where = f"{path}, after line {before}"
                if len(some) == 1 and some[0].count(b":") > _MOST_COLUMNS:
                    # Other strings are matched too, or each of their quotes would be a new start.
                    strings = re.findall(rb'"((?:[^"\\]|\\.)*+)"?+\s*+(:?)', some[0])
                    _require_few((name for name, colon in strings if colon), where)
                yield _parsed(b"".join(some), columns, where)
                before += len(some)

    if schema is None:
        schema = pa.schema([])
        for table in tables(None):
            # Pyarrow parses text that looks like a time.
            texts = pa.schema([field.with_type(as_text(field.type)) for field in table.schema])
            schema, count = merge(schema, texts), count + len(table)
            _require_few(schema.names, f"{path}, line {count}")

    def batches(_names: Any, rows: int) -> Iterator[pa.RecordBatch]:
        for table in tables(schema):
            yield from table.to_batches(rows)

    yield TableFile(schema, count, batches)


def _parts(lines: list[bytes], columns: int) -> Iterator[list[bytes]]:
    """Yield lines in halves while they may have too many names or values: each line has a value of
    each column, in the schema or in other lines."""
    names = sum(line.count(b":") for line in lines)
    if len(lines) > 1 and (names > _NAMES or len(lines) * max(columns, names) > _VALUES):
        middle = len(lines) // 2
        yield from _parts(lines[:middle], columns)
        yield from _parts(lines[middle:], columns)
    else:
        yield lines


def merge(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """Return the columns of both schemas, with types that can hold the values of both."""
    return pa.unify_schemas([first, second], promote_options="permissive")


def _require_few(names: Iterable[Any], where: str) -> None:
    if (count := len({*names})) > _MOST_COLUMNS:
        raise InputError(
            f"{where}: got {count} different names, expected the same few in each line; write what "
            "differs as one text, or as a list"
        )


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
