"""safetensors: named tensors, such as matrices of float32 or bfloat16.

A file is the size of its header (uint64, little-endian), the header (JSON: the dtype, the shape and
the place of each tensor), and the numbers of all tensors without a gap.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np

from batchplan.data.arrays import ArrayFormat, ArrayHeader, ArraySource, opened
from batchplan.data.dtypes import BFLOAT16
from batchplan.data.wanted import Wanted, shown
from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.remote import ShardPath

_DTYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_PAIRS = (("x", "y"), ("anchor", "positive"))  # names that say which side they are
_EXPECTED = "F16, BF16 or F32"
_MOST_BYTES = 16 << 20  # of a header


class Tensor(NamedTuple):
    """A tensor of a file; its numbers are the bytes from ``start`` to ``stop``."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class TensorFormat:
    """Files of several matrices, which x_column and y_column name.

    Attributes:
        name: of the format in messages.
        read_tensors: reads the header of an open file; see `read_tensors`.
    """

    has_columns: ClassVar = False
    name: str
    read_tensors: Callable[[BinaryIO, ShardPath], dict[str, Tensor]]

    def sources(
        self, paths: Sequence[ShardPath], sides: Sequence[str], wanted: Wanted
    ) -> list[ArraySource]:
        """Read the headers of these files, and return the source of each side.

        Raises:
            InputError: as `ArraySource`; a named matrix is missing, or it is unclear which to take.
        """
        if len(sides) == 2:  # else the ids may be those of the other side
            Wanted(id=wanted.id).refuse(str(paths[0]))
        with opened(paths[0], self.name) as (file, _):
            tensors = self.read_tensors(file, paths[0])
        matrices = [n for n, one in tensors.items() if one.dtype in _DTYPES and len(one.shape) == 2]
        where = str(paths[0])
        names, mined = wanted.choose(matrices, sides, where, _shown(tensors), _PAIRS)
        sources: list[ArraySource] = []
        held = [*zip(sides, names, strict=False), *(("negatives", name) for name in mined)]
        for side, name in held:
            form = ArrayFormat(self.name, partial(self._read_header, name), f"tensor {name!r}")
            sources += form.sources(paths, (side,), Wanted())
        return sources

    def _read_header(self, name: str, file: BinaryIO, path: ShardPath) -> ArrayHeader:
        tensors = self.read_tensors(file, path)
        if (tensor := tensors.get(name)) is None:
            raise InputError(
                f"{path}: there is no tensor {name!r}, expected it in all shards of a side; "
                f"{_shown(tensors)}"
            )
        if tensor.dtype not in _DTYPES:
            raise InputError(f"{path}: tensor {name!r}: got {tensor.dtype}, expected {_EXPECTED}")
        file.seek(tensor.start)
        return ArrayHeader(tensor.shape, _DTYPES[tensor.dtype], stop=tensor.stop)


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
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if tensor.start != stop:
            raise ValueError(f"tensor {name!r:.40} does not follow the one before it")
        stop = tensor.stop
    if stop != size:
        state = "cut short" if size < stop else "too long"
        raise InputError(
            f"{path}: got {size} bytes, expected {stop} for the tensors of its header; the file is "
            f"{state}: write or copy it again"
        )
    return tensors


def _tensor(start: int, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    begin, end = data_offsets
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end - begin)):
        raise ValueError(f"shape {shape!s:.40} and data_offsets {data_offsets} make no sense")
    if dtype in _DTYPES and end - begin != prod(shape) * _DTYPES[dtype].itemsize:
        raise ValueError(f"shape {shape!s:.40} of {dtype} does not take {end - begin} bytes")
    return Tensor(str(dtype), tuple(shape), start + begin, start + end)


def _shown(tensors: dict[str, Tensor]) -> str:
    names = [
        f"{name!r:.40} {item.dtype:.10} {list(item.shape)!s:.40}" for name, item in tensors.items()
    ]
    return shown("tensors", names)


FORMAT = TensorFormat("safetensors", read_tensors)
