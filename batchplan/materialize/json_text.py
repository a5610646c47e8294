"""Writes rows as JSON text by Arrow's kernels. NaN becomes null, which every reader accepts."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchplan.data.arrow_types import is_list
from batchplan.errors import InputError
from batchplan.materialize.joining import joined

_TEXT = pa.large_binary()
_CONTROLS = {chr(code): json.dumps(chr(code))[1:-1] for code in range(0x20)}


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


def objects(batch: pa.RecordBatch) -> pa.Array:
    """large_binary (n,): each row as a JSON object."""
    return _object([field.name for field in batch.schema], batch.columns, len(batch))


def _object(names: list[str], columns: list[pa.Array], length: int) -> pa.Array:
    if not names:
        return pa.repeat(pa.scalar(b"{}", _TEXT), length)
    parts: list[pa.Array | bytes] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        lead = "{" if number == 0 else ", "
        parts += [f"{lead}{json.dumps(name, ensure_ascii=False)}: ".encode(), values(column)]
    return joined(*parts, b"}")


def values(column: pa.Array) -> pa.Array:
    """large_binary (n,): each value as JSON, ``null`` for a missing one."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return pc.fill_null(_writer(column.type)(column).cast(_TEXT), pa.scalar(b"null", _TEXT))


def _writer(data_type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    types = pa.types
    if types.is_null(data_type) or types.is_boolean(data_type) or types.is_integer(data_type):
        return lambda values: values.cast(pa.string()).cast(pa.large_string())
    if types.is_floating(data_type):
        return _numbers
    if types.is_struct(data_type):
        return _structs
    if is_list(data_type):
        return _lists
    return _strings


def _numbers(values: pa.Array) -> pa.Array:
    """Numbers that read back unchanged; null for NaN and infinity."""
    values = values.cast(pa.float32()) if values.type == pa.float16() else values
    finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    text = finite.cast(pa.string()).cast(pa.large_string())
    # Readers take 1 for an integer.
    return pc.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0")


def _strings(values: pa.Array) -> pa.Array:
    """Text in quotes; times in ISO 8601."""
    text = values.cast(pa.string() if pa.types.is_temporal(values.type) else pa.large_string())
    text = text.cast(pa.large_string())
    text = pc.replace_substring(text, "\\", "\\\\")
    text = pc.replace_substring(text, '"', '\\"')
    if pc.any(pc.match_substring_regex(text, "[\\x00-\\x1f]")).as_py():
        for control, escaped in _CONTROLS.items():
            text = pc.replace_substring(text, control, escaped)
    return joined(b'"', text.cast(_TEXT), b'"')


def _structs(values: pa.Array) -> pa.Array:
    names = [field.name for field in values.type]
    text = _object(names, values.flatten(), len(values))
    return pc.if_else(values.is_valid(), text, pa.scalar(None, _TEXT))


def _lists(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    texts = pa.LargeListArray.from_arrays(pa.array(offsets), values(lists.flatten()))
    text = joined(b"[", pc.binary_join(texts, pa.scalar(b", ", _TEXT)), b"]")
    return pc.if_else(lists.is_valid(), text, pa.scalar(None, _TEXT))


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
