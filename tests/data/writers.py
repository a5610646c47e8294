"""Writes embeddings in every format, by suffix, without the code of the package."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.feather
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


def bits(rows):
    """The upper halves of float32: bfloat16, rounded towards zero."""
    return (rows.view(np.uint32) >> 16).astype(np.uint16)


def safetensors(path, *sides, names="xy"):
    """bfloat16 from uint16, which are its bits."""
    header, start = {}, 0
    for name, rows in zip(names, sides, strict=False):
        dtype = {
            "float16": "F16",
            "float32": "F32",
            "float64": "F64",
            "uint16": "BF16",
            "int8": "I8",
        }
        stop = start + rows.nbytes
        header[name] = {
            "dtype": dtype.get(rows.dtype.name, rows.dtype.name), "shape": rows.shape,
            "data_offsets": [start, stop],
        }  # fmt: skip
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(rows.tobytes() for rows in sides)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def npz(path, *sides):
    np.savez(path, **dict(zip("xy", sides, strict=False)))


def feather(path, *sides):
    pyarrow.feather.write_feather(
        pa.table(dict(zip("xy", map(column, sides), strict=False))), path, chunksize=7
    )


def fvecs(path, rows):
    counts = np.full((len(rows), 1), rows.shape[1], "<i4")
    path.write_bytes(np.hstack([counts.view("<f4"), rows]).tobytes())


def fbin(path, rows):
    path.write_bytes(np.array(rows.shape, "<u4").tobytes() + rows.tobytes())


WRITERS = {
    ".npy": np.save,
    ".parquet": parquet,
    ".arrow": arrow,
    ".safetensors": safetensors,
    ".fbin": fbin,
    ".f16bin": fbin,
    ".i8bin": fbin,
    ".npz": npz,
    ".feather": feather,
    ".fvecs": fvecs,
}
SIDES = {
    ".parquet": parquet,
    ".arrow": arrow,
    ".safetensors": safetensors,
    ".npz": npz,
    ".feather": feather,
}  # formats that may hold both sides
DTYPES = {
    ".fbin": ("f4",),
    ".f16bin": ("f2",),
    ".i8bin": ("i1",),
    ".fvecs": ("f4",),
}  # by suffix, where not all; fmt: skip
MAPPED = [".npy", ".safetensors", ".fbin", ".f16bin", ".i8bin"]
