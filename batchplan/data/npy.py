"""NPY shards: headers read with care, data mapped, and copied only where it must be converted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from batchplan.data.dtypes import fill, overflow_error, stored_dtype
from batchplan.data.matrix import BLOCK_BYTES, RowMatrix, Shard, Side
from batchplan.data.stamp import Stamp, changed_error
from batchplan.errors import InputError
from batchplan.files.reading import readable

_HEADER_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
    # Version 3 differs only in the encoding of structured field names, which are refused anyway.
    (3, 0): npy_format.read_array_header_2_0,
}


@dataclass(frozen=True)
class _Header:
    path: Path
    rows: int
    dim: int
    dtype: np.dtype[Any]  # as the file has it
    fortran: bool
    offset: int
    stamp: Stamp

    @property
    def converts(self) -> bool:
        """Whether the data cannot be used as it lies in the file."""
        aligned = self.offset % self.dtype.itemsize == 0
        return self.fortran or not aligned or not self.dtype.isnative or self.dtype.itemsize == 8


class NpySource:
    """One side in NPY files; headers are read and checked on construction, data by `read`.

    Little-endian C-ordered float16 and float32, which is what np.save writes, is mapped. Fortran
    order, big-endian values, float64 (with ``cast``) and data at an odd offset are converted once
    into memory, as they would otherwise be converted for every tile.

    Attributes:
        rows, dims: N, and (d,).
        need: bytes of memory that `read` allocates and keeps.
        work: rows that `read` converts.

    Raises:
        InputError: a file is no NPY file of finite size, of another shape or dtype than float16 or
            float32 rows, or unlike its fellows.
    """

    def __init__(self, paths: Sequence[Path], side: str, cast: bool = False) -> None:
        self.side = side
        self._headers = [_read_header(path) for path in paths]
        first = self._headers[0]
        self.dtype = stored_dtype(first.dtype, cast, str(first.path))
        for header in self._headers[1:]:
            dtype = stored_dtype(header.dtype, cast, str(header.path))
            if (header.dim, dtype) != (first.dim, self.dtype):
                raise InputError(
                    f"{header.path}: got {header.dim} dimensions of {dtype}, expected {first.dim} "
                    f"of {self.dtype} as in {first.path}; the shards of side {side} must be alike"
                )
        converted = [header.rows for header in self._headers if header.converts]
        self.rows = sum(header.rows for header in self._headers)
        self.dims: tuple[int, ...] = (first.dim,)
        self.work = sum(converted)
        self.need = self.work * first.dim * self.dtype.itemsize

    def read(self, advance: Callable[[int], None]) -> tuple[list[Side], None]:
        """Map or convert the shards; ``advance`` hears of rows converted. NPY holds no ids."""
        segments = [self._segment(header, advance) for header in self._headers]
        shards = tuple(
            Shard(str(head.path), self.side, head.rows, None if head.converts else head.stamp)
            for head in self._headers
        )
        return [Side(self.side, RowMatrix(segments), shards)], None

    def _segment(self, header: _Header, advance: Callable[[int], None]) -> NDArray[Any]:
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        shape = (header.rows, header.dim)
        with readable(header.path), header.path.open("rb") as file:
            now = Stamp.of(header.path, os.fstat(file.fileno()))
            if now != header.stamp:
                raise changed_error(header.path, "other content than its header is of")
            data: NDArray[Any] = np.memmap(file, header.dtype, "r", header.offset, shape, order)
        if not header.converts:
            return data
        out = np.empty(shape, self.dtype)
        step = max(1, BLOCK_BYTES // (header.dim * header.dtype.itemsize))
        for start in range(0, header.rows, step):
            block = np.asarray(data[start : start + step])
            if (bad := fill(out[start : start + step], block)) is not None:
                raise overflow_error(f"{header.path} row {start + bad}", block[bad])
            advance(len(block))
        header.stamp.untouched(str(header.path))
        return out


def _read_header(path: Path) -> _Header:
    """The header of one file, believed only as far as the file's size bears it out."""
    with readable(path), path.open("rb") as file:
        stamp = Stamp.of(path, os.fstat(file.fileno()))
        shape, fortran, dtype = _parse(file, path, size := stamp.size)
        offset = file.tell()
    stored_dtype(dtype, True, str(path))
    if len(shape) != 2:
        hints = {0: "a single number is no matrix", 1: "stack the vectors with np.stack"}
        hint = hints.get(len(shape), "reshape to (rows, dimensions)")
        raise InputError(
            f"{path}: got {len(shape)} dimensions, shape {shape}, expected 2 "
            f"(rows, dimensions); {hint}"
        )
    # Python integers do not overflow, so a header that lies is caught here, before any mapping.
    expected = offset + prod(shape) * dtype.itemsize
    if min(shape) < 0:
        raise InputError(f"{path}: the header's shape {shape} is negative; the file is damaged")
    if size != expected:
        state = "cut short" if size < expected else "too long"
        raise InputError(
            f"{path}: got {size} bytes, expected {expected} for the header's shape {shape} of "
            f"{dtype}; the file is {state}: write or copy it again"
        )
    if min(shape) == 0:
        raise InputError(f"{path}: got shape {shape}, expected at least 1 row and 1 dimension")
    fortran = fortran and 1 not in shape
    return _Header(path, shape[0], shape[1], dtype, fortran, offset, stamp)


def _parse(file: BinaryIO, path: Path, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if size == 0:
        raise InputError(f"{path}: got an empty file (0 bytes), expected an NPY file")
    start = file.read(len(npy_format.MAGIC_PREFIX))
    if start.startswith(b"PK"):
        raise InputError(
            f"{path}: got a zip archive (.npz), expected an NPY file; "
            "np.load it and np.save the one array"
        )
    if start != npy_format.MAGIC_PREFIX:
        raise InputError(
            f"{path}: got a file that begins with {start!r}, expected an NPY file "
            f"({npy_format.MAGIC_PREFIX!r}); save the matrix with np.save"
        )
    file.seek(0)
    try:
        version = npy_format.read_magic(file)
        return _HEADER_READERS[version](file)
    # Hostile bytes may fail anywhere in NumPy's parser (tokenizer, literals, dtype), in many ways.
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{path}: got an NPY header that cannot be read ({reason}), expected version 1.0 to "
            "3.0; the file is damaged: write it again with np.save"
        ) from error
