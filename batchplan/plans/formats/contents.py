"""What all plan formats write and read."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.sidecar import has_plan_metadata
from batchplan.typing import Int64Array

Document = dict[str, Any]
"""The metadata of a plan, and a digest of its rows and batches, as a JSON object."""

Read = tuple[Int64Array, Int64Array | None, Document | None]
"""The rows, and the batch offsets and the metadata if the file has them."""


@dataclass(frozen=True)
class PlanFormat:
    """How to write and read a kind of file.

    Attributes:
        write: writes what the format can hold to a stream. It gets the stream, the `Plan`, the
            metadata, and the id of each row of the data (NumPy or Arrow) or None.
        read: reads a file that is open at its start; the path is for messages. It checks the
            format, the caller checks rows and batches.
        sidecar: whether the metadata are in a JSON file next to it, not in the file itself.
        is_plan: whether a file of this suffix is a plan, and not embeddings or other data.
    """

    write: Callable[[BinaryIO, Any, Document, Any], None]
    read: Callable[[BufferedReader, Path], Read]
    sidecar: bool
    is_plan: Callable[[Path], bool] = has_plan_metadata


def parse_document(data: bytes, where: str) -> Document:
    """Return the JSON object of the metadata.

    Raises:
        InputError: not JSON as `parse_json` reads it, or not an object.
    """
    try:
        document = parse_json(data)
    except ValueError as error:
        raise InputError(f"{where}: metadata is not JSON ({error}); write the plan again") from None
    if not isinstance(document, dict):
        raise InputError(
            f"{where}: metadata is a JSON {type(document).__name__}, expected an object; write the "
            "plan again"
        )
    return document


def document_bytes(document: Document, indent: int | None = None) -> bytes:
    """Return the document as strict JSON, which every reader understands."""
    return json.dumps(document, allow_nan=False, indent=indent).encode()
