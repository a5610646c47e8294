"""Row ids: integers or strings, each once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchplan.errors import InputError

_EXPECTED = "expected an array of integers or strings, one for each row"


def id_type(given: pa.DataType) -> pa.DataType | None:
    """The type in which ids are kept: the integer type itself, or large_string; None if neither."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_integer(given):
        return given
    # large_string: plain strings overflow their 32-bit offsets at 2 GB when chunks are combined.
    text = pa.types.is_string(given) or pa.types.is_large_string(given)
    return pa.large_string() if text or given == pa.string_view() else None


def arrow_from(
    given: Any, kind: Callable[[pa.DataType], pa.DataType | None], what: str, expected: str
) -> pa.Array | pa.ChunkedArray:
    """An Arrow array of the type that ``kind`` gives for that of ``given``.

    Raises:
        InputError: Arrow cannot hold the values, or ``kind`` gives None.
    """
    try:
        array = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given)
        if (kept := kind(array.type)) is not None:
            return array.cast(kept)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{what}: got {type(given).__name__} ({reason}), {expected}") from error
    raise InputError(f"{what}: got {array.type}, {expected}")


def ids_from(given: Any, rows: int) -> pa.Array:
    """Checked ids from an array or sequence that the caller of the library passed.

    Raises:
        InputError: not ``rows`` integers or strings, or a null or duplicate among them.
    """
    ids = arrow_from(given, id_type, "ids", _EXPECTED)
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if len(ids) != rows:
        raise InputError(f"ids: got {len(ids)} ids, expected {rows}, one for each row")
    check_ids(ids, "ids", lambda row: f"row {row}")
    return ids


def check_ids(ids: pa.Array, where: str, place: Callable[[int], str]) -> None:
    """Refuse null and duplicate ids; ``place`` says where a row lies.

    Raises:
        InputError: naming how many there are and where the first ones lie.
    """
    if ids.null_count:
        first = int(np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"{where}: got {ids.null_count} null ids, first at {place(first)}, expected an id in "
            "every row; fill them, or name another column with id_column (--id-column)"
        )
    encoded = ids.dictionary_encode()
    if (extra := len(ids) - len(encoded.dictionary)) == 0:
        return
    codes = encoded.indices.to_numpy()
    # dictionary_encode numbers values as they first appear: a repeat is a code already passed.
    second = int(np.flatnonzero(np.maximum.accumulate(codes)[:-1] >= codes[1:])[0]) + 1
    first = int(np.flatnonzero(codes == codes[second])[0])
    raise InputError(
        f"{where}: got {extra} duplicate ids, first {ids[second].as_py()!r} at {place(first)} and "
        f"{place(second)}, expected each id once; make them unique, or name another column with "
        "id_column (--id-column)"
    )


def check_same_order(x_ids: pa.Array, y_ids: pa.Array, place: Callable[[int], str]) -> None:
    """Refuse two sides that hold the same ids in another order: their rows are paired wrongly.

    Sides with ids of their own (queries q1, q2 ...; documents d1, d2 ...) pass.

    Raises:
        InputError: naming the first row that differs.
    """
    if x_ids.type != y_ids.type or len(x_ids) != len(y_ids) or x_ids.equals(y_ids):
        return
    if not x_ids.take(pc.sort_indices(x_ids)).equals(y_ids.take(pc.sort_indices(y_ids))):
        return
    row = int(np.flatnonzero(pc.not_equal(x_ids, y_ids).to_numpy(zero_copy_only=False))[0])
    raise InputError(
        f"y: got the ids of x in another order, first at {place(row)} ({y_ids[row].as_py()!r}, "
        f"expected {x_ids[row].as_py()!r}); sort both sides by id"
    )
