"""NPY: only the row numbers, in training order; int32 if they fit."""

import os
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.npy import read_npy_header, write_npy
from batchplan.plans.formats.contents import Document, PlanFormat, Read
from batchplan.plans.validation import narrow, widen
from batchplan.typing import Int64Array


def write(stream: BinaryIO, plan: Any, document: Document, ids: Any) -> None:
    write_npy(stream, narrow(plan.rows))


def read(stream: BufferedReader, path: Path) -> Read:
    return read_array(stream, os.fstat(stream.fileno()).st_size, str(path)), None, None


def read_array(stream: IO[bytes], size: int, where: str) -> Int64Array:
    """Read a one-dimensional NPY array of integers as int64, never unpickling.

    Args:
        stream: at the start of the array.
        size: bytes of the stream; a header that claims another size allocates nothing.
        where: the name of the array in messages.

    Raises:
        InputError: not NPY, truncated, over-long, or not a non-empty 1-D array of integers.
    """
    try:
        shape, _, dtype = read_npy_header(stream)
    except ValueError as error:
        raise InputError(f"{where}: is not a readable NPY array ({error})") from error
    if dtype.kind not in "iu" or len(shape) != 1 or shape[0] < 1:
        raise InputError(
            f"{where}: dtype {dtype} and shape {shape}, expected a plan, a one-dimensional "
            "array of integers with at least one entry; save row numbers with .astype('int64')"
        )
    expected = shape[0] * dtype.itemsize
    data = stream.read(expected) if size - stream.tell() == expected else b""
    if len(data) != expected:
        raise InputError(
            f"{where}: is truncated or too long for shape {shape} and dtype {dtype}; write it again"
        )
    return widen(np.frombuffer(data, dtype=dtype), where)


FORMAT = PlanFormat(write, read, sidecar=True)
