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


def arrow(path, *sides):
    """A stream, as `datasets` saves it."""
    table = pa.table(dict(zip("xy", map(column, sides), strict=False)))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, 7)


def fbin(path, rows):
    path.write_bytes(np.array(rows.shape, "<u4").tobytes() + rows.tobytes())


WRITERS = {".npy": np.save, ".parquet": parquet, ".arrow": arrow, ".fbin": fbin, ".f16bin": fbin}
SIDES = {".parquet": parquet, ".arrow": arrow}  # formats that may hold both sides
DTYPES = {".fbin": ("f4",), ".f16bin": ("f2",)}  # by suffix, where not all
MAPPED = [".npy", ".fbin", ".f16bin"]
