"""Writes rows as JSON text. NaN and infinity become null, which every reader accepts."""

import json
from math import isfinite
from typing import Any

import pyarrow as pa

from batchplan.data.arrow_types import as_text, is_list
from batchplan.errors import InputError


def check_columns(schema: pa.Schema) -> None:
    """Require columns that JSON can hold.

    Raises:
        InputError: names the first column that it cannot hold, such as bytes.
    """
    for field in schema:
        if not _is_json(field.type):
            raise InputError(
                f"column {field.name!r}: is {field.type}, which JSON cannot hold; write parquet or "
                "arrow, or name the other columns with --column"
            )


def objects(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as a JSON object."""
    columns = map(_python_values, batch.columns)
    rows = zip(*columns, strict=True) if batch.num_columns else [()] * len(batch)
    return [_dump(dict(zip(batch.schema.names, row, strict=True))) for row in rows]


def values(column: pa.Array) -> list[bytes]:
    """Return each value as JSON, ``null`` for a missing one."""
    return list(map(_dump, _python_values(column)))


def _python_values(column: pa.Array) -> list[Any]:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = as_text(column.type)
    values: list[Any] = (column if column.type == kind else column.cast(kind)).to_pylist()
    return values


def _dump(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False)
    return text.encode()


def _finite(value: Any) -> Any:
    """Return a value with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return list(map(_finite, value)) if isinstance(value, list) else value


def _is_json(data_type: pa.DataType) -> bool:
    types = pa.types
    if isinstance(data_type, pa.ExtensionType):
        return _is_json(data_type.storage_type)
    if is_list(data_type):
        return _is_json(data_type.value_type)
    if types.is_struct(data_type):
        return all(_is_json(field.type) for field in data_type)
    simple = (
        types.is_null, types.is_boolean, types.is_integer, types.is_floating, types.is_string,
        types.is_large_string, types.is_date, types.is_timestamp, types.is_time,
    )  # fmt: skip
    return any(kind(data_type) for kind in simple) or data_type == pa.string_view()
