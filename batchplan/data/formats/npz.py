"""NPZ: a ZIP of arrays with names, stored as np.savez does, or deflated as np.savez_compressed
does."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from math import prod
from typing import IO, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from batchplan.data.formats.arrays import ArrayHeader
from batchplan.data.formats.tensors import Tensor, TensorFormat
from batchplan.files.npy import read_npy_header
from batchplan.files.remote import ShardPath

_MOST_EXPANSION = 1032  # of deflate
_MOST_BYTES = 1 << 16  # of a header, which may be deflated too


def read_tensors(file: BinaryIO, _path: ShardPath) -> dict[str, Tensor]:
    """Return the arrays of a file by name, with headers that are checked against its size.

    Raises:
        ValueError: a header makes no sense.
        BadZipFile, OSError, RuntimeError and others: the file is no ZIP, or damaged.
    """
    size = file.seek(0, os.SEEK_END)
    with ZipFile(file) as archive:
        return {
            info.filename.removesuffix(".npy"): _tensor(archive, info, file, size)
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }


def _tensor(archive: ZipFile, info: ZipInfo, file: BinaryIO, size: int) -> Tensor:
    """Read the header of a member, checked against the size of the file."""
    name, stored = f"{info.filename!r:.40}", info.compress_type == ZIP_STORED
    if not stored and info.compress_type != ZIP_DEFLATED:
        raise ValueError(f"{name} is compressed by another method than deflate")
    most = info.compress_size * (1 if stored else _MOST_EXPANSION)
    if info.compress_size > size or info.file_size > most:
        raise ValueError(f"{name} claims {info.file_size} bytes")
    with archive.open(info) as member:
        start = BytesIO(member.read(_MOST_BYTES))
    shape, fortran, dtype = read_npy_header(start)
    expected = start.tell() + prod(shape) * dtype.itemsize
    if info.file_size != expected and not dtype.hasobject:
        raise ValueError(f"{name} has {info.file_size} bytes, expected {expected}")
    unpack = None if stored else partial(_unpacked, info, start.tell())
    header = ArrayHeader(shape, dtype, fortran, stop=size, unpack=unpack)
    # A member follows a header of 30 bytes, the last four of which are the lengths of what follows
    # them.
    file.seek(info.header_offset + 26)
    lengths = np.frombuffer(file.read(4), "<u2")
    begin = info.header_offset + 30 + int(lengths.sum()) + start.tell()
    return Tensor(str(dtype), shape, begin, info.header_offset + info.compress_size, header)


@contextmanager
def _unpacked(info: ZipInfo, header: int, file: BinaryIO) -> Iterator[IO[bytes]]:
    """Open the numbers of a deflated member, whose checksum is compared at its end."""
    with ZipFile(file) as archive, archive.open(info) as member:
        member.read(header)
        yield member


FORMAT = TensorFormat("NPZ", read_tensors)
