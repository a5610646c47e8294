"""The Parquet file of lists of candidates."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchplan.data.arrow_types import float_type, id_type, is_list
from batchplan.data.columns import choose_ids, read_type
from batchplan.data.formats import format_of
from batchplan.data.formats.tables import TableFile, TableFiles, TableFormat
from batchplan.data.ids import Ids, alike, checked_ids, whole
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath
from batchplan.files.scratch import scratch_array
from batchplan.typing import Float32Array, Int64Array

Lists = tuple[Int64Array, NDArray[np.int32], Float32Array]

_IDS, _SCORES, _POSITIVE = "ids", "scores", "positive"
_ID = "id"
_ROWS = 1 << 14  # decoded at a time


@np.errstate(over="ignore")  # what float32 cannot hold is refused as infinite
def read(path: ShardPath) -> tuple[Lists, Float32Array, pa.Array | None]:
    """Read the lists as ``indptr``, ``indices`` and ``scores``, the positives, and the column
    ``id`` if there is one; see `Candidates.load`."""
    form = format_of(path)
    if not isinstance(form, TableFormat):
        raise InputError(f"{path}: got {form.name}, expected Parquet with ids, scores and positive")
    files = TableFiles.of([path], _check, form)
    known = None
    if (name := files.alike()) is not None:
        known = checked_ids(Ids(files.ids(name), "ids", lambda row: f"{path} row {row}"))
    # Counted first, since whole lists may take more than the memory.
    total = sum(
        pc.sum(pc.list_value_length(piece.columns[0])).as_py() or 0
        for piece in files.pieces([_IDS], _ROWS)
    )
    indices = scratch_array((total,), np.dtype(np.int32))
    all_scores = scratch_array((total,), np.dtype(np.float32))
    all_lengths, positives = [], []
    filled = 0
    for _, start, _, (ids, scores, positive) in files.pieces([_IDS, _SCORES, _POSITIVE], _ROWS):
        for name, column in ((_IDS, ids), (_SCORES, scores), (_POSITIVE, positive)):
            if column.null_count:
                row = start + pc.index(column.is_null(), True).as_py()
                raise InputError(f"{path} row {row}, column {name!r}: got null; drop the row")
        lengths = pc.list_value_length(ids).to_numpy()
        other = pc.list_value_length(scores).to_numpy()
        if (lengths != other).any():
            row = int(np.flatnonzero(lengths != other)[0])
            raise InputError(
                f"{path} row {start + row}: got {lengths[row]} ids and {other[row]} scores, "
                "expected as many of each"
            )
        stop = filled + int(lengths.sum())
        indices[filled:stop] = _numbers(ids.flatten(), known, path, start, lengths)
        all_scores[filled:stop] = scores.flatten().to_numpy(zero_copy_only=False)
        all_lengths.append(lengths.astype(np.int64))
        positives.append(positive.to_numpy(zero_copy_only=False).astype(np.float32))
        filled = stop
    indptr = np.append(0, np.cumsum(np.concatenate(all_lengths)))
    return (indptr, indices, all_scores), np.concatenate(positives), known


def _check(file: TableFile, path: ShardPath) -> str | None:
    """Return the name of the column ``id``, None without one; refuse columns that lists of
    candidates do not have."""

    def ids_in_lists(kind: pa.DataType) -> pa.DataType | None:
        return id_type(kind.value_type) if is_list(kind) else None

    schema, where = file.schema, str(path)
    read_type(schema, _IDS, where, ids_in_lists, "lists of ids")
    read_type(schema, _SCORES, where, float_type, "lists of floats")
    read_type(schema, _POSITIVE, where, pa.types.is_floating, "floats")
    return choose_ids(schema, _ID, where, required=False)


def _numbers(
    ids: pa.Array, known: pa.Array | None, path: ShardPath, start: int, lengths: NDArray[Any]
) -> NDArray[Any]:
    """Return the row numbers of some ids of lists that begin at row ``start``."""
    if ids.null_count:
        raise InputError(f"{path}: got null among the ids from row {start} on; drop it")
    if known is None:
        if not pa.types.is_integer(ids.type):
            raise InputError(
                f"{path}: got ids of {ids.type} without a column 'id', which says which rows they "
                "are; add it, or write row numbers"
            )
        numbers = ids.to_numpy()
        # Beyond int32 they are out of range anyway, which the caller says.
        return np.asarray(np.clip(numbers, -1, np.iinfo(np.int32).max), np.int32)
    ids = ids.cast(id_type(ids.type))
    listed = whole(Ids(ids, f"{path} column {_IDS!r}", "entry {}".format)).values
    listed, known = alike(listed, known)
    found = pc.index_in(listed, known)
    if found.null_count:
        entry = pc.index(found.is_null(), True).as_py()
        row = start + int(np.searchsorted(np.cumsum(lengths), entry, side="right"))
        raise InputError(
            f"{path} row {row}: got the candidate {ids[entry].as_py()!r:.80}, which is not in the "
            "column 'id'; candidates must be rows of this file"
        )
    return np.asarray(found.to_numpy(), np.int32)
