"""Bytes of the rows of Arrow arrays, as they are in memory."""

import numpy as np
import pyarrow as pa

from batchplan.typing import Int64Array


def content(rows: pa.Array) -> memoryview:
    """Return all bytes of a large_binary array without nulls."""
    offsets = _offsets(rows)
    data = rows.buffers()[2]
    return memoryview(data if data is not None else b"")[offsets[0] : offsets[-1]]


def lengths_of(rows: pa.Array) -> Int64Array:
    """Return the number of bytes of each row of a large_binary array, int64 (n,)."""
    return np.diff(_offsets(rows))


def _offsets(rows: pa.Array) -> Int64Array:
    """Return where each row begins, and the end of the last one, int64 (n + 1,)."""
    return np.frombuffer(rows.buffers()[1], np.int64, len(rows) + 1, rows.offset * 8)
