"""safetensors: named tensors, such as matrices of float32 or bfloat16.

A file is the size of its header (uint64, little-endian), the header (JSON: the dtype, the shape and
the place of each tensor), and the numbers of all tensors without a gap.
"""

import os
from math import prod
from typing import Any, BinaryIO

import numpy as np

from batchplan.data.dtypes import BFLOAT16
from batchplan.data.formats.arrays import ArrayHeader, require_size
from batchplan.data.formats.tensors import Tensor, TensorFormat
from batchplan.files.documents import parse_json
from batchplan.files.remote import ShardPath

_DTYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
_MOST_BYTES = 16 << 20  # of a header


def read_tensors(file: BinaryIO, path: ShardPath) -> dict[str, Tensor]:
    """Return the tensors of a file by name, checked against its size.

    Raises:
        InputError: the file is shorter or longer than its header says.
        ValueError: the header makes no sense.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = 8 + int.from_bytes(file.read(8), "little")
    if not 8 < start <= min(size, _MOST_BYTES):
        raise ValueError(f"it states a header of {start - 8} bytes in a file of {size}")
    document = parse_json(file.read(start - 8))
    document.pop("__metadata__", None)
    tensors = {name: _tensor(start=start, **fields) for name, fields in document.items()}
    stop = start
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:4]):
        if tensor.start != stop:
            raise ValueError(f"tensor {name!r:.40} does not follow the one before it")
        stop = tensor.stop
    require_size(path, size, stop, "the tensors of its header")
    return tensors


def _tensor(start: int, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    begin, end = data_offsets
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end - begin)):
        raise ValueError(f"shape {shape!s:.40} and data_offsets {data_offsets} make no sense")
    if dtype in _DTYPES and end - begin != prod(shape) * _DTYPES[dtype].itemsize:
        raise ValueError(f"shape {shape!s:.40} of {dtype} does not take {end - begin} bytes")
    begin, end = start + begin, start + end
    header = ArrayHeader(tuple(shape), _DTYPES[dtype], stop=end) if dtype in _DTYPES else None
    return Tensor(str(dtype), tuple(shape), begin, end, header)


FORMAT = TensorFormat("safetensors", read_tensors)
