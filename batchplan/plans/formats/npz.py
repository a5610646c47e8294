"""NPZ: a ZIP of the rows, the batch offsets and the metadata as the bytes of a JSON document."""

import os
import zipfile
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.sidecar import NPZ_MEMBERS, has_members
from batchplan.plans.formats.contents import (
    Document,
    PlanFormat,
    Read,
    document_bytes,
    parse_document,
)
from batchplan.plans.formats.npy import read_array
from batchplan.plans.validation import narrow
from batchplan.typing import Int64Array

# Deflate shrinks even consecutive int64 numbers only about ten times: a large member that shrinks
# far more is a bomb.
_MOST_EXPANSION = 100
_ALWAYS_ALLOWED = 1 << 20  # bytes


def write(stream: BinaryIO, plan: Any, document: Document, ids: Any) -> None:
    text = np.frombuffer(document_bytes(document), dtype=np.uint8)
    # NumPy gives each member the same date: equal plans give equal bytes.
    np.savez(stream, rows=narrow(plan.rows), batch_offsets=plan.batch_offsets, metadata=text)


def read(stream: BufferedReader, path: Path) -> Read:
    try:
        with zipfile.ZipFile(stream) as archive:
            size = os.fstat(stream.fileno()).st_size
            rows, offsets, text = (_read_member(archive, name, path, size) for name in NPZ_MEMBERS)
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # zipfile passes on whatever damaged bytes raise
        raise InputError(
            f"{path}: is not a readable NPZ plan ({error}); write it again, or save your own row "
            "numbers as .npy"
        ) from error
    return rows, offsets, parse_document(text.astype(np.uint8).tobytes(), str(path))


def _read_member(archive: zipfile.ZipFile, name: str, path: Path, size: int) -> Int64Array:
    info = archive.getinfo(f"{name}.npy")
    where = f"{path}, member {name}"
    most = max(_ALWAYS_ALLOWED, _MOST_EXPANSION * min(info.compress_size, size))
    # Other methods than deflate expand without bound before they stop at the stated size.
    usual = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if info.file_size > most or not usual:
        raise InputError(
            f"{where}: claims {info.file_size} bytes out of {info.compress_size}, but row numbers "
            "cannot shrink that much; write the plan again"
        )
    with archive.open(info) as member:
        return read_array(member, info.file_size, where)


FORMAT = PlanFormat(write, read, sidecar=False, is_plan=has_members)
