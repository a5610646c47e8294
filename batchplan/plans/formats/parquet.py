"""Parquet: columns batch and row, and id if there are ids; the metadata are in the schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.errors import InputError
from batchplan.files.reading import changed_error, open_regular
from batchplan.plans.formats.contents import (
    Document,
    PlanFormat,
    Read,
    document_bytes,
    parse_document,
)
from batchplan.plans.validation import widen
from batchplan.typing import Int64Array

_KEY = b"batchplan"
NEGATIVES_KEY = b"batchplan-negatives"  # of tables of negatives
_ROW_GROUP = 1 << 20


def write(stream: BinaryIO, plan: Any, document: Document, ids: Any) -> None:
    columns = {"batch": plan.batch_of_entry().astype(np.int64), "row": plan.rows}
    if ids is not None:
        columns["id"] = stored_ids(ids, plan.metadata.num_rows).take(pa.array(plan.rows))
    table = pa.table(columns).replace_schema_metadata({_KEY: document_bytes(document)})
    pq.write_table(table, stream, row_group_size=_ROW_GROUP)


def read(stream: BufferedReader, path: Path) -> Read:
    with _parquet(stream, path) as file:
        schema = file.schema_arrow
        if any(schema.names.count(name) != 1 for name in ("batch", "row")):
            raise InputError(
                f"{path}: columns {schema.names!r:.200}, expected one column batch and one column "
                "row; is this a plan?"
            )
        table = file.read(columns=["batch", "row"])
    for name in ("batch", "row"):
        if nulls := table[name].null_count:
            raise InputError(
                f"{path}, column {name}: got {nulls} nulls, expected none; drop those rows"
            )
    batch = widen(table["batch"].to_numpy(), f"{path}, column batch")
    rows = widen(table["row"].to_numpy(), f"{path}, column row")
    stored = (schema.metadata or {}).get(_KEY)
    document = None if stored is None else parse_document(stored, str(path))
    return rows, _offsets_of(batch, str(path)), document


def entry_ids(path: Path, digest: str) -> pa.ChunkedArray | None:
    """Return the ids of the entries of a plan (num_entries,), or of the anchors of a table of
    negatives (n,); None if it has none or is not Parquet.

    Args:
        path: the file.
        digest: of the plan or the table that was loaded.

    Raises:
        InputError: the file cannot be read, or has another plan or table by now.
    """
    if path.suffix.lower() != ".parquet":
        return None
    with opened(path, "a plan") as file:
        keyed = file.schema_arrow.metadata or {}
        stored = keyed.get(_KEY, keyed.get(NEGATIVES_KEY))
        if stored is None or "id" not in file.schema_arrow.names:
            return None
        if parse_document(stored, str(path)).get("digest") != digest:
            raise changed_error(path, "another plan")
        return file.read(columns=["id"])["id"]


@contextmanager
def opened(path: Path, what: str) -> Iterator[pq.ParquetFile]:
    """An open Parquet file, expected to be ``what``.

    Raises:
        InputError: the file, or what the body reads from it, is missing or unreadable.
    """
    with open_regular(path, what) as stream, _parquet(stream, path) as file:
        yield file


@contextmanager
def _parquet(stream: BufferedReader, path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(stream) as file:
            yield file
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is not a readable Parquet file ({reason:.200})") from error


def has_metadata(path: Path, key: bytes = _KEY) -> bool:
    """Return whether a file is Parquet with this key in its schema, by default that of plans."""
    try:
        return key in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return False


def stored_ids(ids: Any, num_rows: int) -> pa.Array | pa.ChunkedArray:
    """Return the ids of all ``num_rows`` rows, from NumPy, Arrow or a sequence, in Arrow.

    Raises:
        InputError: another number of ids, or ids that Parquet cannot hold.
    """
    if len(ids) != num_rows:
        raise InputError(f"ids: got {len(ids)}, expected one for each of {num_rows} rows")
    try:
        return ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"ids: cannot be a Parquet column ({error})") from error


def _offsets_of(batch: Int64Array, where: str) -> Int64Array:
    """Return where each run of equal batch numbers starts, and the end.

    Raises:
        InputError: a batch number occurs in two runs.
    """
    starts = np.concatenate(([0], np.flatnonzero(batch[1:] != batch[:-1]) + 1))
    numbers, first = np.unique(batch[starts], return_index=True)
    if len(numbers) != len(starts):
        again = np.setdiff1d(np.arange(len(starts)), first)[0]
        raise InputError(
            f"{where}, column batch: batch {batch[starts[again]]} starts again at entry "
            f"{starts[again]}, expected the entries of a batch together; sort them by batch"
        )
    return np.append(starts, len(batch)).astype(np.int64)


FORMAT = PlanFormat(write, read, sidecar=False, is_plan=has_metadata)
