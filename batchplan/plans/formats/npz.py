"""NPZ: a ZIP of the rows, the batch offsets and the metadata as the bytes of a JSON document."""

import os
import zipfile
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.plans.formats.contents import Contents, PlanFormat, document_bytes, parse_document
from batchplan.plans.formats.npy import read_array, write_array
from batchplan.plans.validation import narrow
from batchplan.typing import Int64Array

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date in ZIP: equal plans give equal bytes
_MEMBERS = ("rows", "batch_offsets", "metadata")
# Deflate shrinks even consecutive int64 numbers only about ten times: a large member that shrinks
# far more is a bomb.
_MOST_EXPANSION = 100
_ALWAYS_ALLOWED = 1 << 20  # bytes


def write(stream: BinaryIO, contents: Contents) -> None:
    text = np.frombuffer(document_bytes(contents.document), dtype=np.uint8)
    arrays: tuple[Any, ...] = (narrow(contents.rows), contents.batch_offsets, text)
    members = dict(zip(_MEMBERS, arrays, strict=True))
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, values in members.items():
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            info.create_system, info.external_attr = 3, 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as member:
                write_array(member, values)


def read(stream: BufferedReader, path: Path) -> Contents:
    size = os.fstat(stream.fileno()).st_size
    try:
        with zipfile.ZipFile(stream) as archive:
            rows, offsets, text = (_read_member(archive, name, path, size) for name in _MEMBERS)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: is not a readable NPZ file ({error}); write it again") from error
    return Contents(rows, offsets, parse_document(text.astype(np.uint8).tobytes(), str(path)))


def _read_member(archive: zipfile.ZipFile, name: str, path: Path, size: int) -> Int64Array:
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise InputError(
            f"{path}: no member {name}, expected {', '.join(_MEMBERS)}; for your own array, save "
            "the row numbers as .npy"
        ) from None
    where = f"{path}, member {name}"
    if info.flag_bits & 0x1:
        raise InputError(f"{where}: is encrypted; unpack it and write it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{where}: compression method {info.compress_type}, expected deflate")
    if info.file_size > max(_ALWAYS_ALLOWED, _MOST_EXPANSION * info.compress_size):
        raise InputError(
            f"{where}: claims {info.file_size} bytes out of {info.compress_size}, but row numbers "
            "cannot shrink that much; write the plan again"
        )
    if info.compress_size > size:
        raise InputError(f"{where}: claims {info.compress_size} bytes, more than the file has")
    with archive.open(info) as member:
        return read_array(member, info.file_size, where)


FORMAT = PlanFormat(write, read, sidecar=False, holds_batches=True)
