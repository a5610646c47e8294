"""The files of big-ann-benchmarks: the rows and the dimensions as uint32, then the matrix, all
little-endian; float32 in ``.fbin``, float16 in ``.f16bin``, int8 in ``.i8bin``."""

from typing import Any, BinaryIO

import numpy as np

from batchplan.data.formats.arrays import ArrayFormat, ArrayHeader
from batchplan.files.remote import ShardPath

_DTYPES: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"), ".f16bin": np.dtype("<f2"), ".i8bin": np.dtype("i1"),
}  # fmt: skip


def read_header(file: BinaryIO, path: ShardPath) -> ArrayHeader:
    rows, dim = np.frombuffer(file.read(8), "<u4").tolist()
    return ArrayHeader((rows, dim), _DTYPES[path.suffix.lower()])


FORMAT = ArrayFormat("fbin", read_header)
