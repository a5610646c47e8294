"""Types of Arrow: which hold lists, text, bytes or ids, and as which JSON has them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchplan.data.proportion import require_decodable

TAKES_VIEWS = int(pa.__version__.partition(".")[0]) >= 19  # as buffers, of which there are many


def storage(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are stored, which is another one for extension types.
    A type is an extension only if a package that was imported has registered it."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def decoded(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are stored, without a dictionary."""
    kind = storage(kind)
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(values: Any) -> Any:
    """Return the values of an array, chunked or not, as stored. Views of text, which polars writes
    and few functions of Arrow take, become dictionaries."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array(map(plain, values.chunks)) if values.num_chunks else values
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type == pa.string_view():
        return _distinct_views(values)
    if pa.types.is_dictionary(values.type) and values.type.value_type == pa.string_view():
        inner = _distinct_views(values.dictionary)
        return pa.DictionaryArray.from_arrays(inner.indices.take(values.indices), inner.dictionary)
    return values


def _distinct_views(values: pa.Array) -> pa.DictionaryArray:
    """Return views of text as a dictionary, since many may be of the same long text.

    Raises:
        InputError: different views are of the same bytes, so that the texts are much longer.
    """
    valid, views, *texts = values.buffers()
    whole = pa.Array.from_buffers(pa.binary(16), len(values), [valid, views], offset=values.offset)
    coded = whole.dictionary_encode()
    distinct = coded.dictionary.buffers()[1]
    found = values
    if TAKES_VIEWS:
        found = pa.Array.from_buffers(values.type, len(coded.dictionary), [None, distinct, *texts])
    # The first four bytes of a view are its length.
    used = found.buffers()[1] if len(found) else b""
    first, stop = found.offset, found.offset + len(found)
    lengths = np.frombuffer(used, np.int32)[::4][first:stop]
    held = sum(buffer.size for buffer in (views, *texts))
    require_decodable(int(lengths.sum(dtype=np.int64)), held, "column of views")
    names = found.cast(pa.large_string())
    if not TAKES_VIEWS:
        return names.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, names)


def encoded(values: pa.Array, kind: pa.DataType) -> pa.DictionaryArray:
    """Return an array, as `plain` returns it, as a dictionary of values of another type, which are
    distinct and in order of first appearance."""
    if not pa.types.is_dictionary(values.type):
        return values.cast(kind).dictionary_encode()
    # A file may have many values in its dictionary, but only these rows' count.
    own = values.indices.dictionary_encode()
    names = values.dictionary.take(own.dictionary).cast(kind).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(own.indices), names.dictionary)


def decoded_bytes(values: Any) -> int:
    """Return the bytes of an array, as `plain` returns it, if it had no dictionaries."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        if is_text(kind.value_type) or is_bytes(kind.value_type):
            lengths = pc.binary_length(values.dictionary).take(values.indices)
            return 8 * len(values) + (pc.sum(lengths).as_py() or 0)
        return int(len(values) * kind.value_type.bit_width // 8)
    if is_list(kind) or pa.types.is_map(kind):
        return 8 * len(values) + decoded_bytes(values.flatten())
    if pa.types.is_struct(kind):
        return len(values) + sum(map(decoded_bytes, values.flatten()))
    return int(values.nbytes)


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists, of one length or of several."""
    kind = storage(kind)
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are strings, also in a dictionary."""
    return decoded(kind) in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values are bytes of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def float_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers in lists of floats; None for other types."""
    values = storage(kind).value_type if is_list(kind) else None
    return values if values is not None and pa.types.is_floating(values) else None


def vector_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers in lists of floats or int8; None for other types."""
    is_int8 = is_list(kind) and storage(kind).value_type == pa.int8()
    return pa.int8() if is_int8 else float_type(kind)


def label_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which labels are read: their integer type, boolean, or large_string; None
    for others."""
    kind = decoded(kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return kind
    # Plain strings overflow their 32-bit offsets at 2 GB when chunks are combined.
    return pa.large_string() if is_text(kind) else None


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which ids are read: their type of numbers, large_string or large_binary;
    None for others. `batchplan.data.ids.whole` turns floats and decimals into integers."""
    kind = decoded(kind)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind) or pa.types.is_decimal(kind):
        return kind
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.large_binary()
    return None if pa.types.is_boolean(kind) else label_type(kind)


def as_text(data_type: pa.DataType) -> pa.DataType:
    """Return the type with text instead of times, and float32 instead of float16."""
    if pa.types.is_temporal(data_type):
        return pa.string()
    if data_type == pa.float16():
        return pa.float32()
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(as_text(data_type.value_type), data_type.list_size)
    if is_list(data_type):
        return pa.list_(as_text(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(as_text(field.type)) for field in data_type])
    return data_type
