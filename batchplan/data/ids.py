"""Row ids: integers, strings or bytes, all different; and whether the ids of two sources agree."""

import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchplan.data.arrow_types import id_type, plain
from batchplan.errors import InputError

_EXPECTED = "expected an array of integers or strings, one for each row"
_AT_ONCE = 1 << 20  # ids compared at once
_HASHED_AT_ONCE = 1 << 16
_NAMED = 3  # ids of one side that a message names


class Ids(NamedTuple):
    """The ids of some rows.

    Attributes:
        values: of a type that `id_type` returns.
        name: of what has them, for messages.
        place: names a row.
    """

    values: pa.Array
    name: str
    place: Callable[[int], str] = "row {}".format


def arrow_from(
    values: Any, kind: Callable[[pa.DataType], pa.DataType | None], what: str, expected: str
) -> pa.Array:
    """``values`` as an Arrow array of the type that ``kind`` returns for theirs.

    Raises:
        InputError: Arrow cannot hold the values, or ``kind`` returns None.
    """
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        if (stored := kind(array.type)) is not None:
            array = plain(array).cast(stored)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
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
    if len(ids) != rows:
        raise InputError(f"ids: got {len(ids)} ids, expected {rows}, one for each row")
    return checked_ids(Ids(ids, "ids"))


def checked_ids(ids: Ids) -> pa.Array:
    """Return the values, with whole numbers as integers; refuse null and duplicate ids.

    Raises:
        InputError: names their number and the first of them; or as `whole`.
    """
    values, name, place = whole(ids)
    mend = "or name another column with id_column (--id-column; '' reads none)"
    if values.null_count:
        first = pc.index(values.is_null(), True).as_py()
        raise InputError(
            f"{name}: got {values.null_count} null ids, first at {place(first)}, expected an id in "
            f"every row; fill them, {mend}"
        )
    encoded = values.dictionary_encode()
    if (extra := len(values) - len(encoded.dictionary)) == 0:
        return values
    codes = encoded.indices.to_numpy()
    # dictionary_encode numbers values in order of first appearance, so a repeat does not rise.
    second = int(np.flatnonzero(np.maximum.accumulate(codes)[:-1] >= codes[1:])[0]) + 1
    first = int(np.flatnonzero(codes == codes[second])[0])
    raise InputError(
        f"{name}: got {extra} duplicate ids, first {_shown(values, second)} at {place(first)} and "
        f"{place(second)}, expected each id once; make them unique, {mend}"
    )


def whole(ids: Ids) -> Ids:
    """Return floats and decimals as integers, and other ids as they are.

    Raises:
        InputError: a number is no integer of 64 bits; names the first.
    """
    values = ids.values
    if not (pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)):
        return ids
    for kind in (pa.int64(), pa.uint64()):
        try:
            return ids._replace(values=values.cast(kind))
        except pa.ArrowException:  # a fraction, or out of range
            continue
    numbers = enumerate(value.as_py() for value in values)
    row = next((row for row, n in numbers if n is not None and not _fits(n)), 0)
    raise InputError(
        f"{ids.name}: got {values.type} such as {_shown(values, row)} at {ids.place(row)}, "
        "expected whole numbers of 64 bits; write integers or strings, or read no ids with "
        "id_column='' (--id-column '')"
    )


def _fits(number: Any) -> bool:
    """Return whether a float or a Decimal is an integer of 64 bits."""
    return bool(number == number // 1 and -(1 << 63) <= number < 1 << 64)


def check_same(expected: Ids, found: Ids, apart: Callable[[str], None] | None = None) -> None:
    """Refuse ids that contradict others: rows with other ids, or in another order.

    Ids are compared by value: 7 is "7" and 7.0, but not "007".

    Args:
        expected: N ids.
        found: N ids.
        apart: called with a note if no id is in both (queries q1, q2, ...; documents d1, d2, ...);
            without it, these are refused too.

    Raises:
        InputError: names the first row that differs, and ids that only one has.
    """
    expected, found = whole(expected), whole(found)
    if (row := _first_difference(expected.values, found.values)) < 0:
        return
    one, other = alike(expected.values, found.values)
    lost = expected.values.filter(pc.invert(pc.is_in(one, value_set=other)))
    new = found.values.filter(pc.invert(pc.is_in(other, value_set=one)))
    if len(lost) == len(one) and apart is not None:
        return apart(f"no id of {found.name} is one of {expected.name}; rows pair by position")
    got, only = f"the ids of {expected.name} in another order", ""
    if len(lost) or len(new):
        got = f"other ids than {expected.name}"
        only = f"; {_some(lost)} only in {expected.name}, {_some(new)} only in {found.name}"
    raise InputError(
        f"{found.name}: got {got}, first at {found.place(row)} ({_shown(found.values, row)}, "
        f"expected {_shown(expected.values, row)}){only}; give the same rows in the same order, or "
        "compare no ids with id_column='' (--id-column '')"
    )


def ids_digest(ids: pa.Array) -> str:
    """Return SHA-256 of ids by value, in their order: of their lengths and bytes, see `as_bytes`.
    A plan stores it, as most of its formats have no ids."""
    digest = hashlib.sha256()
    for start in range(0, len(ids), _HASHED_AT_ONCE):
        part = as_bytes(ids.slice(start, _HASHED_AT_ONCE)).to_pylist()  # `to_numpy` imports pandas
        digest.update(np.fromiter(map(len, part), "<i8", len(part)).data)
        digest.update(b"".join(part))
    return f"sha256:{digest.hexdigest()}"


def check_digest(planned: str | None, found: Ids) -> str:
    """Return the `ids_digest` of ids (N,); refuse another one than that of a plan, unless None.
    A plan that was joined has that of each part, ``*`` and its number of rows, between blanks.

    Raises:
        InputError: names the source of the ids.
    """
    parts, start, digest = [], 0, ids_digest(found.values)
    for count in map(int, re.findall(r"\*(\d{1,18})", planned or "")):
        parts.append(f"{ids_digest(found.values[start : start + count])}*{count}")
        start += count
    if planned not in (None, digest, " ".join(parts)):
        raise InputError(
            f"{found.name}: got other ids than were planned, or these in another order; give the "
            "same rows in the same order, or compare no ids with id_column='' (--id-column '')"
        )
    return digest


def _first_difference(one: pa.Array, other: pa.Array) -> int:
    """Return the first row whose ids differ; -1 if there is none."""
    for start in range(0, len(one), _AT_ONCE):
        pair = alike(one.slice(start, _AT_ONCE), other.slice(start, _AT_ONCE))
        row = pc.index(pc.not_equal(*pair).fill_null(True), True).as_py()
        if row >= 0:
            return start + int(row)
    return -1


def alike(one: pa.Array, other: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return ids of one type, in which equal ids are equal: theirs, or bytes with digits for
    integers."""
    return (one, other) if one.type == other.type else (as_bytes(one), as_bytes(other))


def as_bytes(ids: pa.Array) -> pa.Array:
    """Return ids as large_binary, with digits for integers."""
    return (ids.cast(pa.large_string()) if pa.types.is_integer(ids.type) else ids).cast(
        pa.large_binary()
    )


def _some(ids: pa.Array) -> str:
    named = ", ".join(_shown(ids, row) for row in range(min(_NAMED, len(ids))))
    return f"{len(ids):,}" + f" ({named}{', ...' * (len(ids) > _NAMED)})" * bool(named)


def _shown(ids: pa.Array, row: int) -> str:
    return f"{ids[row].as_py()!r:.80}"
