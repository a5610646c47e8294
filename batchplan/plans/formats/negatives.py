"""The Parquet file of a table of negatives, with the metadata in its schema."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.errors import InputError
from batchplan.files.remote import no_url
from batchplan.plans.formats.contents import Document, document_bytes, parse_document
from batchplan.plans.formats.parquet import has_metadata, ids_from, opened
from batchplan.typing import Int64Array

SUFFIX = ".parquet"
NAMES = ("anchors", "negatives")
Arrays = Mapping[str, Int64Array]
"""By a name of `NAMES`: (n,) and (n, M)."""

_KEY = b"batchplan-negatives"
_ROW_GROUP = 1 << 16


def is_negatives(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a table of negatives, judged by its suffix and its metadata; raises
    InputError for a URL."""
    file = no_url(path)
    return file.suffix.lower() == SUFFIX and os.path.isfile(file) and has_metadata(file, _KEY)


def digest(arrays: Arrays) -> str:
    """Return SHA-256 over names, shapes and values, to detect edited files."""
    hasher = hashlib.sha256()
    for name, values in arrays.items():
        hasher.update(f"{name} {values.shape}".encode())
        hasher.update(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
    return hasher.hexdigest()


def write(stream: BinaryIO, arrays: Arrays, document: Document, ids: Any) -> None:
    """Write the arrays, the metadata and, unless ``ids`` (of all rows) is None, ids of the anchors.

    Raises:
        InputError: ids that do not fit the data.
    """
    ids = None if ids is None else ids_from(ids, document["num_rows"])
    batches = _batches(arrays, ids)
    first = next(batches)
    schema = first.schema.with_metadata({_KEY: document_bytes(document)})
    with pq.ParquetWriter(stream, schema) as writer:
        for batch in (first, *batches):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def read(path: Path) -> tuple[dict[str, Int64Array], Document]:
    """Return the arrays and the metadata of a file.

    Raises:
        InputError: the file is missing, broken or not a table of negatives.
    """
    with opened(path, "a table of negatives") as file:
        table = file.read()
    stored = (table.schema.metadata or {}).get(_KEY)
    if stored is None:
        raise InputError(
            f"{path}: is not a table of negatives, as the planners scns and hardneg write; is it a "
            "plan or embeddings?"
        )
    return {name: _array(table, name, path) for name in NAMES}, parse_document(stored, str(path))


def _batches(arrays: Arrays, ids: Any) -> Iterator[pa.RecordBatch]:
    """Yield a batch per row group, so that 32-bit list offsets suffice."""
    for start in range(0, len(arrays["anchors"]), _ROW_GROUP):
        group = {name: values[start : start + _ROW_GROUP] for name, values in arrays.items()}
        columns: dict[str, Any] = {}
        for name, block in group.items():
            columns[_column(name)] = flat = pa.array(block.ravel())
            if block.ndim == 2:
                offsets = np.arange(0, block.size + 1, block.shape[1], dtype=np.int32)
                columns[name] = pa.ListArray.from_arrays(pa.array(offsets), flat)
        if ids is not None:
            taken = ids.take(pa.array(group["anchors"]))
            columns["id"] = taken.combine_chunks() if hasattr(taken, "num_chunks") else taken
        yield pa.RecordBatch.from_pydict(columns)


def _array(table: pa.Table, name: str, path: Path) -> Int64Array:
    column, lists = _column(name), name != "anchors"
    if column not in table.column_names:
        raise InputError(f"{path}: no column {column!r}; plan again")
    array = table.column(column).combine_chunks()
    kind = pa.int64()
    if array.type != (pa.list_(kind) if lists else kind):
        raise InputError(
            f"{path}, column {column}: got {array.type}, expected {'lists of ' * lists}{kind}; "
            "plan again"
        )
    flat = array.flatten() if lists else array
    even = not lists or bool((np.diff(array.offsets.to_numpy()) * len(array) == len(flat)).all())
    if array.null_count or flat.null_count or not even:
        raise InputError(
            f"{path}, column {column}: expected no nulls{' and lists of equal length' * lists}; "
            "plan again"
        )
    values: Int64Array = flat.to_numpy(zero_copy_only=False)
    return values.reshape(len(array), -1) if lists else values


def _column(name: str) -> str:
    return "row" if name == "anchors" else name
