"""NPY: only the row numbers, in training order; int32 if they fit."""

import os
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.npy import read_npy_header
from batchplan.plans.formats.contents import Contents, PlanFormat
from batchplan.plans.validation import narrow, widen
from batchplan.typing import Int64Array


def write(stream: BinaryIO, contents: Contents) -> None:
    write_array(stream, narrow(contents.rows))


def read(stream: BufferedReader, path: Path) -> Contents:
    return Contents(read_array(stream, os.fstat(stream.fileno()).st_size, str(path)))


def write_array(stream: IO[bytes], values: NDArray[Any]) -> None:
    """Write an array as NPY 1.0, little-endian on every machine."""
    values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    npy_format.write_array_header_1_0(stream, npy_format.header_data_from_array_1_0(values))
    stream.write(values.data)


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
    got = size - stream.tell()
    if got != expected:
        raise InputError(
            f"{where}: {got} bytes after the NPY header, expected {expected} for shape {shape} and "
            f"dtype {dtype}; the file is {'truncated' if got < expected else 'too long'}, write it "
            "again"
        )
    data = stream.read(expected)
    if len(data) < expected:
        raise InputError(
            f"{where}: {len(data)} bytes after the NPY header, expected {expected}; the file is "
            "truncated, write it again"
        )
    return widen(np.frombuffer(data, dtype=dtype), where)


FORMAT = PlanFormat(write, read, sidecar=True, holds_batches=False)
