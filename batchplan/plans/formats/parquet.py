"""Parquet: columns batch and row, and id where ids are given; the metadata in the schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from batchplan.errors import InputError
from batchplan.files.reading import open_regular
from batchplan.plans.formats.contents import (
    Contents,
    Document,
    document_bytes,
    parse_document,
)
from batchplan.plans.validation import Int64Array, widen

if TYPE_CHECKING:
    from batchplan.plans.plan import Plan

_KEY = b"batchplan"
_ROW_GROUP = 1 << 20


def write(stream: BinaryIO, plan: Plan, document: Document, ids: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"batch": plan.batch_of_entry().astype(np.int64), "row": plan.rows}
    if ids is not None:
        columns["id"] = _take_ids(ids, plan)
    table = pa.table(columns).replace_schema_metadata({_KEY: document_bytes(document)})
    pq.write_table(table, stream, row_group_size=_ROW_GROUP)


def read(path: Path) -> Contents:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path, "a plan") as stream, pq.ParquetFile(stream) as file:
            schema = file.schema_arrow
            if any(schema.names.count(name) != 1 for name in ("batch", "row")):
                raise InputError(
                    f"{path}: columns {schema.names!r:.200}, expected one column batch "
                    "and one column row; is this a plan?"
                )
            table = file.read(columns=["batch", "row"])
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is not a readable Parquet file ({reason:.200})") from error
    batch = _integers(table.column("batch"), f"{path}, column batch")
    rows = _integers(table.column("row"), f"{path}, column row")
    stored = (schema.metadata or {}).get(_KEY)
    document = None if stored is None else parse_document(stored, str(path))
    return Contents(rows, _offsets_of(batch, str(path)), document)


def has_metadata(path: Path) -> bool:
    """Whether a file is Parquet that carries a plan's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _KEY in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return False


def _take_ids(ids: Any, plan: Plan) -> Any:
    """The ids of the entries, from those of all rows (NumPy, Arrow or a sequence)."""
    import pyarrow as pa

    num_rows = plan.metadata.num_rows
    if len(ids) != num_rows:
        raise InputError(f"ids: got {len(ids)}, expected one for each of {num_rows} rows")
    try:
        if not isinstance(ids, pa.Array | pa.ChunkedArray):
            ids = pa.array(ids)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"ids: not a column that Parquet can hold ({error})") from error
    return ids.take(pa.array(plan.rows))


def _integers(column: Any, where: str) -> Int64Array:
    if column.null_count:
        raise InputError(f"{where}: {column.null_count} nulls, expected none; drop those rows")
    values: np.ndarray[Any, Any] = column.to_numpy()
    return widen(values, where)


def _offsets_of(batch: Int64Array, where: str) -> Int64Array:
    """Where each run of equal batch numbers starts, and the end.

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
