"""Bytes of many rows, joined by Arrow rather than by Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchplan.typing import Int64Array


def joined(*parts: pa.Array | bytes) -> pa.Array:
    """large_binary (n,): the parts of each row, concatenated; bytes are the same in all rows."""
    scalars = [
        pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part for part in parts
    ]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.large_binary()))


def content(rows: pa.Array) -> memoryview:
    """All bytes of a large_binary array without nulls, as they are in memory."""
    offsets = offsets_of(rows)
    data = rows.buffers()[2]
    return memoryview(data if data is not None else b"")[offsets[0] : offsets[-1]]


def offsets_of(rows: pa.Array) -> Int64Array:
    """int64 (n + 1,): where each row of a large_binary array begins in its bytes, and the end."""
    offsets: Int64Array = np.frombuffer(rows.buffers()[1], np.int64, len(rows) + 1, rows.offset * 8)
    return offsets


def lengths_of(rows: pa.Array) -> Int64Array:
    """int64 (n,): the bytes of each row of a large_binary array."""
    return np.diff(offsets_of(rows))


def fixed(values: NDArray[np.generic]) -> pa.Array:
    """large_binary (n,): the bytes of each line of an array (n, ...), as they are in memory."""
    values = np.ascontiguousarray(values)
    width = values.nbytes // len(values)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * width
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
