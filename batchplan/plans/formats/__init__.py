"""The file formats of a plan: a table from suffix to how it is written and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from batchplan.errors import InputError
from batchplan.plans.formats import npy, npz, parquet, text
from batchplan.plans.formats.contents import Contents, Document

if TYPE_CHECKING:
    from batchplan.plans.plan import Plan

STDOUT = "-"


@dataclass(frozen=True)
class Format:
    """How one kind of file is written and read.

    Attributes:
        write: writes a plan to a stream, given its metadata document and the ids of all rows or
            None; each format uses what it has room for.
        read: reads the contents of a file, checking all but the rules that rows and batches obey.
        sidecar: whether the metadata lie in a JSON file beside it and not in the file itself.
        holds_batches: whether the file itself says where batches begin.
    """

    write: Callable[[BinaryIO, Plan, Document, Any], None]
    read: Callable[[Path], Contents]
    sidecar: bool
    holds_batches: bool


FORMATS = {
    ".npy": Format(npy.write, npy.read, sidecar=True, holds_batches=False),
    ".parquet": Format(parquet.write, parquet.read, sidecar=False, holds_batches=True),
    ".npz": Format(npz.write, npz.read, sidecar=False, holds_batches=True),
    ".jsonl": Format(text.write_jsonl, text.read_jsonl, sidecar=True, holds_batches=True),
    ".txt": Format(text.write_txt, text.read_txt, sidecar=True, holds_batches=False),
}


def format_of(path: Path) -> Format:
    """The format that the suffix of the path names.

    Raises:
        InputError: another suffix, or none.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputError(
            f"{path}: suffix {path.suffix!r}, expected one of {', '.join(FORMATS)} for a plan"
        )
    return found
