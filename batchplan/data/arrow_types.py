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


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which ids are stored: their integer type, or large_string; None for
    others."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return kind
    # Plain strings overflow their 32-bit offsets at 2 GB when chunks are combined.
    return pa.large_string() if is_text(kind) or kind == pa.string_view() else None
