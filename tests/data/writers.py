"""Writes embeddings in every format, by suffix, without the code of the package."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def column(rows):
    """A vector column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def parquet(path, *sides):
    pq.write_table(pa.table(dict(zip("xy", map(column, sides), strict=False))), path)


def fbin(path, rows):
    path.write_bytes(np.array(rows.shape, "<u4").tobytes() + rows.tobytes())


WRITERS = {".npy": np.save, ".parquet": parquet, ".fbin": fbin, ".f16bin": fbin}
SIDES = {".parquet": parquet}  # formats that may hold both sides
DTYPES = {".fbin": ("f4",), ".f16bin": ("f2",)}  # by suffix, where not all
MAPPED = [".npy", ".fbin", ".f16bin"]
