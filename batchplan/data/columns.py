"""Which columns of a Parquet schema are the vectors and the ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.data.ids import id_type
from batchplan.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_DEFAULT_ID = "id"


@dataclass(frozen=True)
class Wanted:
    """The column names the user gave, None where none was; an empty ``id`` asks for no ids."""

    x: str | None = None
    y: str | None = None
    id: str | None = None

    def named(self) -> list[str]:
        """The arguments that were given, as the user knows them."""
        return [f"{name}_column" for name, value in vars(self).items() if value]


def choose_vectors(
    schema: pa.Schema, wanted: Wanted, sides: Sequence[str], where: str
) -> tuple[str, ...]:
    """The vector column of each side; one name for both sides where there is one matrix only.

    Args:
        schema: of the first file.
        wanted: the user's choice.
        sides: ``("x", "y")`` where the file may hold both, else the one it holds.
        where: the file's path, for messages.

    Raises:
        InputError: a column is missing, of another type, or the choice is not clear.
    """
    vectors = [field.name for field in schema if value_type(field.type) is not None]
    x, y = wanted.x, wanted.y
    for name in (wanted.x if "x" in sides else None, wanted.y if "y" in sides else None):
        if name is not None:
            require_column(schema, name, where)
            if value_type(schema.field(name).type) is None:
                raise InputError(
                    f"{where}: column {name!r} is {schema.field(name).type}, expected lists of "
                    f"float16 or float32; {_columns(schema)}"
                )
    if len(sides) == 1:
        return (_one(schema, vectors, x if sides[0] == "x" else y, sides[0], where),)
    if x is not None and y is not None:
        return (x, y) if x != y else (x,)
    if x is not None or y is not None:
        others = [name for name in vectors if name not in (x, y)]
        if not others and x is not None:
            return (x,)
        if len(others) == 1:
            return (x or others[0], y or others[0])
    elif len(vectors) in (1, 2):
        return tuple(vectors)
    raise InputError(
        f"{where}: got {len(vectors)} vector columns, expected 1 or 2 (lists of float16 or "
        f"float32); {_columns(schema)}" + (_choose("x", "y") if len(vectors) > 1 else "")
    )


def choose_ids(schema: pa.Schema, wanted: Wanted, where: str, required: bool) -> str | None:
    """The id column: the one named, else ``id`` where it holds integers or strings, else None.

    Raises:
        InputError: the column named is not there (if ``required``), or of another type.
    """
    if wanted.id is None:
        there = schema.get_field_index(_DEFAULT_ID) >= 0
        return _DEFAULT_ID if there and id_type(schema.field(_DEFAULT_ID).type) else None
    if not wanted.id or (not required and wanted.id not in schema.names):
        return None
    require_column(schema, wanted.id, where)
    if id_type(schema.field(wanted.id).type) is None:
        raise InputError(
            f"{where}: column {wanted.id!r} is {schema.field(wanted.id).type}, expected ids that "
            "are integers or strings"
        )
    return wanted.id


def require_column(schema: pa.Schema, name: str, where: str) -> None:
    """Refuse a name that the schema lacks or holds more than once."""
    if (count := schema.names.count(name)) != 1:
        state = "there is no such column" if count == 0 else f"there are {count} of that name"
        raise InputError(f"{where}: column {name!r}: {state}; {_columns(schema)}")


def value_type(given: pa.DataType) -> pa.DataType | None:
    """The type of the numbers in a list column of floats, None for any other column."""
    import pyarrow as pa

    lists = (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list)
    if any(check(given) for check in lists) and pa.types.is_floating(given.value_type):
        return given.value_type
    return None


def _one(schema: pa.Schema, vectors: list[str], wanted: str | None, side: str, where: str) -> str:
    if wanted is not None:
        return wanted
    if len(vectors) == 1:
        return vectors[0]
    also = " and a pair was given too" if side == "x" and len(vectors) > 1 else ""
    mend = "; drop the pair, or choose" if also else "; choose"
    raise InputError(
        f"{where}: got {len(vectors)} vector columns{also}, expected 1 for side {side}; "
        f"{_columns(schema)}" + (f"{mend}{_choose(side)[8:]}" if len(vectors) > 1 else "")
    )


def _choose(*sides: str) -> str:
    return "; choose with " + " and ".join(f"{s}_column (--{s}-column)" for s in sides)


def _columns(schema: pa.Schema) -> str:
    names = [f"{field.name} {field.type}" for field in schema]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"the columns are {', '.join(names[:20])}{more}"
