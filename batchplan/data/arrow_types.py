"""Which types of Arrow hold lists, text, bytes or ids."""

import pyarrow as pa


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists, of one length or of several."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values are bytes of any length."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def float_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers in lists of floats; None for other types."""
    return kind.value_type if is_list(kind) and pa.types.is_floating(kind.value_type) else None


def label_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which labels are read: their integer type, boolean, or large_string; None
    for others."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return kind
    # Plain strings overflow their 32-bit offsets at 2 GB when chunks are combined.
    return pa.large_string() if is_text(kind) or kind == pa.string_view() else None


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which ids are read: their type of numbers, large_string or large_binary;
    None for others. `batchplan.data.ids.whole` turns floats and decimals into integers."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind) or pa.types.is_decimal(kind):
        return kind
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.large_binary()
    return None if pa.types.is_boolean(kind) else label_type(kind)
