"""Chooses the vector and id columns of a schema."""

from collections.abc import Sequence

import pyarrow as pa

from batchplan.data.arrow_types import float_type, id_type
from batchplan.data.wanted import Wanted
from batchplan.errors import InputError

_DEFAULT_ID = "id"


def choose_vectors(
    schema: pa.Schema, wanted: Wanted, sides: Sequence[str], where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the vector column of each side (one name if there is only one matrix), and those of
    mined negatives.

    Args:
        schema: of the first file.
        wanted: the user's choice for these sides.
        sides: ``("x", "y")`` if the file may have both, else the one it has; ``("negatives",)`` if
            it has only negatives.
        where: the path of the file, for messages.

    Raises:
        InputError: a column is missing or of another type, or the choice is ambiguous.
    """
    vectors = [field.name for field in schema if float_type(field.type) is not None]
    for name in (wanted.x, wanted.y):
        if name is not None:
            require_column(schema, name, where)
            if name not in vectors:
                raise InputError(
                    f"{where}: column {name!r} is {schema.field(name).type}, expected lists of "
                    f"float16 or float32; {_columns(schema)}"
                )
    vectors, mined = wanted.split(vectors, sides)
    if sides == ("negatives",):
        if not mined and len(vectors) != 1:
            raise InputError(
                f"{where}: got {len(vectors)} vector columns, expected one, or the columns "
                f"negative_1, negative_2, ...; {_columns(schema)}"
            )
        return (), mined or tuple(vectors)
    chosen = wanted.choose(vectors, sides)
    if chosen is None:
        raise _unclear(schema, len(vectors), sides, wanted, where)
    return chosen, mined


def choose_ids(schema: pa.Schema, wanted: Wanted, where: str, required: bool) -> str | None:
    """Return the id column: the named one, else ``id`` if it has integers or strings, else None.

    Raises:
        InputError: the named column is missing (if ``required``) or of another type.
    """
    if wanted.id is None:
        exists = schema.get_field_index(_DEFAULT_ID) >= 0
        return _DEFAULT_ID if exists and id_type(schema.field(_DEFAULT_ID).type) else None
    if not wanted.id or (not required and wanted.id not in schema.names):
        return None
    require_column(schema, wanted.id, where)
    if id_type(schema.field(wanted.id).type) is None:
        got = schema.field(wanted.id).type
        raise InputError(
            f"{where} column {wanted.id!r}: got {got}, expected integers or strings as ids"
        )
    return wanted.id


def require_column(schema: pa.Schema, name: str, where: str) -> None:
    """Refuse a name that the schema lacks or has more than once."""
    if (count := schema.names.count(name)) != 1:
        state = "there is no such column" if count == 0 else f"there are {count} of that name"
        raise InputError(f"{where}: column {name!r}: {state}; {_columns(schema)}")


def _unclear(
    schema: pa.Schema, count: int, sides: Sequence[str], wanted: Wanted, where: str
) -> InputError:
    expected = "1 or 2" if wanted.y is None else "2 because y_column is set"
    if len(sides) == 1:
        expected = f"1 for side {sides[0]}" + (" because a pair is set" if "x" in sides else "")
    mend = ""
    if count > 1:
        names = " and ".join(f"{side}_column (--{side}-column)" for side in sides)
        mend = f"; choose with {names}" + (", or drop the pair" if sides == ("x",) else "")
    return InputError(
        f"{where}: got {count} vector columns (lists of float16 or float32), expected {expected}; "
        f"{_columns(schema)}{mend}"
    )


def _columns(schema: pa.Schema) -> str:
    names = [f"{field.name!r} {field.type}" for field in schema]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"the columns are {', '.join(names[:20])}{more}"
