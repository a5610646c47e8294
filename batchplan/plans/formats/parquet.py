"""Parquet: columns batch and row, and id if there are ids; the metadata are in the schema."""

from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchplan.data.formats import parquet
from batchplan.data.formats.tables import TableFile, TableFiles
from batchplan.data.proportion import require_decodable
from batchplan.errors import InputError
from batchplan.files.reading import changed_error
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
_ENTRY_BYTES = 40  # of memory that a plan takes while it is read and checked


def write(stream: BinaryIO, plan: Any, document: Document, ids: Any) -> None:
    columns = {"batch": plan.batch_of_entry().astype(np.int64), "row": plan.rows}
    if ids is not None:
        columns["id"] = stored_ids(ids, plan.metadata.num_rows).take(pa.array(plan.rows))
    table = pa.table(columns).replace_schema_metadata({_KEY: document_bytes(document)})
    pq.write_table(table, stream, row_group_size=_ROW_GROUP)


def read(_stream: BufferedReader, path: Path) -> Read:
    with parquet.FORMAT.opened(path) as file:
        schema = file.schema
        if any(schema.names.count(name) != 1 for name in ("batch", "row")):
            raise InputError(
                f"{path}: columns {schema.names!r:.200}, expected one column batch and one column "
                "row; is this a plan?"
            )
        require_plausible(_ENTRY_BYTES * file.num_rows, file, path)
        found: dict[str, list[Int64Array]] = {"batch": [], "row": []}
        for columns in file.columns([*found]):
            for (name, parts), column in zip(found.items(), columns, strict=True):
                if nulls := column.null_count:
                    raise InputError(
                        f"{path}, column {name}: got {nulls} nulls, expected none; drop those rows"
                    )
                parts.append(widen(column.to_numpy(zero_copy_only=False), f"{path}, column {name}"))
    if not found["row"]:
        widen(np.empty(0, np.int64), str(path))  # refuses it
    batch, rows = (np.concatenate(found.pop(name)) for name in ("batch", "row"))
    stored = (schema.metadata or {}).get(_KEY)
    document = None if stored is None else parse_document(stored, str(path))
    return rows, _offsets_of(batch, str(path)), document


def require_plausible(need: int, file: TableFile, path: Path) -> None:
    """Refuse a plan or a table of negatives that needs memory out of proportion to its file."""
    require_decodable(need, file.size, f"{path}: row numbers", "save it as .npy, or plan again")


def entry_ids(path: Path, digest: str) -> pa.Array | None:
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

    def check(file: TableFile, _path: Any) -> bool:
        keyed = file.schema.metadata or {}
        stored = keyed.get(_KEY, keyed.get(NEGATIVES_KEY))
        if stored is None or "id" not in file.schema.names:
            return False
        if parse_document(stored, str(path)).get("digest") != digest:
            raise changed_error(path, "another plan")
        return True

    files = TableFiles.of([path], check, parquet.FORMAT)
    return files.ids("id") if files.alike() else None


def has_metadata(path: Path, key: bytes = _KEY) -> bool:
    """Return whether a file is Parquet with this key in its schema, by default the key of plans."""
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
