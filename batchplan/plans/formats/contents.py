"""What all plan formats write and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.sidecar import has_plan_metadata
from batchplan.typing import Int64Array

Document = dict[str, Any]
"""The metadata of a plan, and a digest of its rows and batches, as a JSON object."""


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of a file, which need not be a valid plan.

    Attributes:
        rows: int64 (num_entries,), row numbers in training order.
        batch_offsets: int64 (num_batches + 1,); None if the file has none.
        document: the metadata; None if the file has none.
        ids: (num_rows,), NumPy or Arrow, the id of each row of the data, or None. Only some formats
            write them.
    """

    rows: Int64Array
    batch_offsets: Int64Array | None = None
    document: Document | None = None
    ids: Any = None

    @classmethod
    def of_batches(cls, batches: Sequence[Int64Array]) -> Contents:
        """Return the contents of a file with these batches, at least one."""
        return cls(np.concatenate(batches), np.cumsum([0, *map(len, batches)], dtype=np.int64))

    def batches(self) -> list[Int64Array]:
        """Return the rows of each batch; without offsets, all rows are one batch."""
        return np.split(self.rows, self._bounds[1:-1])

    def batch_of_entry(self) -> Int64Array:
        """int64 (num_entries,): the number of the batch of each entry."""
        return np.repeat(np.arange(len(self._bounds) - 1), np.diff(self._bounds))

    @property
    def _bounds(self) -> Int64Array:
        return np.array([0, len(self.rows)]) if self.batch_offsets is None else self.batch_offsets


@dataclass(frozen=True)
class PlanFormat:
    """How to write and read a kind of file.

    Attributes:
        write: writes the contents that the format can hold to a stream.
        read: reads a file that is open at its start; the path is for messages. It checks the
            format, the caller checks rows and batches.
        sidecar: whether the metadata are in a JSON file next to it, not in the file itself.
        holds_batches: whether the file itself has the batch offsets.
        is_plan: whether a file is a plan; needed if embeddings have the same suffix.
    """

    write: Callable[[BinaryIO, Contents], None]
    read: Callable[[BufferedReader, Path], Contents]
    sidecar: bool
    holds_batches: bool
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


def document_bytes(document: Document | None, indent: int | None = None) -> bytes:
    """Return the document as strict JSON, which every reader understands."""
    return json.dumps(document, allow_nan=False, indent=indent).encode()
