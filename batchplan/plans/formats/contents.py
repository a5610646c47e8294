"""What comes out of a plan file, whatever its format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.documents import parse_json

Document = dict[str, Any]
"""The metadata as a JSON object: those of the plan and a digest of its rows and batches."""


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds, before it is known to be a plan.

    Attributes:
        rows: int64 (num_entries,), row numbers in training order.
        batch_offsets: int64 (num_batches + 1,); None where the file does not say.
        document: the metadata; None where the file holds none.
    """

    rows: NDArray[np.int64]
    batch_offsets: NDArray[np.int64] | None = None
    document: Document | None = None


def parse_document(data: bytes, where: str) -> Document:
    """The JSON object that the bytes spell.

    Raises:
        InputError: they are not JSON as `parse_json` reads it, or not an object.
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
    """The JSON of the document; strict, so that every reader understands it."""
    return json.dumps(document, allow_nan=False, indent=indent).encode()
