"""Row ids: integers or strings, all different."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchplan.data.arrow_types import id_type
from batchplan.errors import InputError

_EXPECTED = "expected an array of integers or strings, one for each row"


def arrow_from(
    values: Any, kind: Callable[[pa.DataType], pa.DataType | None], what: str, expected: str
) -> pa.Array | pa.ChunkedArray:
    """``values`` as an Arrow array of the type that ``kind`` returns for theirs.

    Raises:
        InputError: Arrow cannot hold the values, or ``kind`` returns None.
    """
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        if (stored := kind(array.type)) is not None:
            return array.cast(stored)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{what}: got {type(values).__name__} ({reason}), {expected}") from error
    raise InputError(f"{what}: got {array.type}, {expected}")


def ids_from(values: Any, rows: int) -> pa.Array:
    """Checked ids from an array or a sequence.

    Raises:
        InputError: they are not ``rows`` integers or strings, or some are null or duplicate.
    """
    ids = arrow_from(values, id_type, "ids", _EXPECTED)
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if len(ids) != rows:
        raise InputError(f"ids: got {len(ids)} ids, expected {rows}, one for each row")
    check_ids(ids, "ids", lambda row: f"row {row}")
    return ids


def check_ids(ids: pa.Array, where: str, place: Callable[[int], str]) -> None:
    """Refuse null and duplicate ids; ``place`` names a row.

    Raises:
        InputError: names their number and the first of them.
    """
    if ids.null_count:
        first = pc.index(ids.is_null(), True).as_py()
        raise InputError(
            f"{where}: got {ids.null_count} null ids, first at {place(first)}, expected an id in "
            "every row; fill them, or name another column with id_column (--id-column)"
        )
    encoded = ids.dictionary_encode()
    if (extra := len(ids) - len(encoded.dictionary)) == 0:
        return
    codes = encoded.indices.to_numpy()
    # dictionary_encode numbers values in order of first appearance, so a repeat does not rise.
    second = int(np.flatnonzero(np.maximum.accumulate(codes)[:-1] >= codes[1:])[0]) + 1
    first = int(np.flatnonzero(codes == codes[second])[0])
    raise InputError(
        f"{where}: got {extra} duplicate ids, first {ids[second].as_py()!r} at {place(first)} and "
        f"{place(second)}, expected each id once; make them unique, or name another column with "
        "id_column (--id-column)"
    )


def check_same_order(x_ids: pa.Array, y_ids: pa.Array, place: Callable[[int], str]) -> None:
    """Refuse sides with the same ids in a different order: their rows are paired wrongly.

    Sides with different ids (queries q1, q2 ...; documents d1, d2 ...) pass.

    Raises:
        InputError: names the first row that differs.
    """
    if x_ids.type != y_ids.type or len(x_ids) != len(y_ids) or x_ids.equals(y_ids):
        return
    if not x_ids.take(pc.sort_indices(x_ids)).equals(y_ids.take(pc.sort_indices(y_ids))):
        return
    row = pc.index(pc.not_equal(x_ids, y_ids), True).as_py()
    raise InputError(
        f"y: got the ids of x in another order, first at {place(row)} ({y_ids[row].as_py()!r}, "
        f"expected {x_ids[row].as_py()!r}); sort both sides by id"
    )
