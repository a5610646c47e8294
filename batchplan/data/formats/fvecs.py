"""fvecs: before each row of float32 the number of its dimensions, as int32; all little-endian."""

import os
from typing import BinaryIO

import numpy as np

from batchplan.data.formats.arrays import ArrayFormat, ArrayHeader
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath


def read_header(file: BinaryIO, path: ShardPath) -> ArrayHeader:
    (dim,) = np.frombuffer(file.read(4), "<i4").tolist()
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if dim < 1 or size % (width := 4 * (dim + 1)):
        raise InputError(
            f"{path}: got {size} bytes, expected rows of {dim} dimensions as the first; the file "
            "is cut short or too long, or is not fvecs: write or copy it again"
        )
    return ArrayHeader((size // width, dim + 1), np.dtype("<f4"), counts=True)


FORMAT = ArrayFormat("fvecs", read_header)
