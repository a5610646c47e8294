"""What every plan format writes and reads, and the metadata in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.sidecar import has_plan_metadata

Document = dict[str, Any]
"""The metadata as a JSON object: those of the plan and a digest of its rows and batches."""


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds, whether or not it is a plan.

    Attributes:
        rows: int64 (num_entries,), row numbers in training order.
        batch_offsets: int64 (num_batches + 1,); None where the file does not say.
        document: the metadata; None where the file holds none.
        ids: (num_rows,), NumPy or Arrow, the id of each row of the data, to be written where there
            is room for those of the entries; or None.
    """

    rows: NDArray[np.int64]
    batch_offsets: NDArray[np.int64] | None = None
    document: Document | None = None
    ids: Any = None

    @classmethod
    def of_batches(cls, batches: Sequence[NDArray[np.int64]]) -> Contents:
        """The contents of a file that holds these batches, at least one."""
        return cls(np.concatenate(batches), np.cumsum([0, *map(len, batches)], dtype=np.int64))

    def batches(self) -> list[NDArray[np.int64]]:
        """The rows of each batch; all rows are one batch where no offsets say otherwise."""
        return np.split(self.rows, self._bounds[1:-1])

    def batch_of_entry(self) -> NDArray[np.int64]:
        """int64 (num_entries,): the number of the batch of each entry."""
        return np.repeat(np.arange(len(self._bounds) - 1), np.diff(self._bounds))

    @property
    def _bounds(self) -> NDArray[np.int64]:
        return np.array([0, len(self.rows)]) if self.batch_offsets is None else self.batch_offsets


@dataclass(frozen=True)
class Format:
    """How one kind of file is written and read.

    Attributes:
        write: puts contents into a stream; it leaves out what the format has no room for.
        read: the contents of a file. It checks the file; the caller checks the rows and batches.
        sidecar: whether the metadata lie in a JSON file beside it and not in the file itself.
        holds_batches: whether the file itself says where batches begin.
        is_plan: whether a file is a plan; asked where embeddings have the same suffix.
    """

    write: Callable[[BinaryIO, Contents], None]
    read: Callable[[Path], Contents]
    sidecar: bool
    holds_batches: bool
    is_plan: Callable[[Path], bool] = has_plan_metadata


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


def document_bytes(document: Document | None, indent: int | None = None) -> bytes:
    """The JSON of the document; strict, so that every reader understands it."""
    return json.dumps(document, allow_nan=False, indent=indent).encode()
