"""Chooses the id column of a schema, and names its columns."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from batchplan.data.arrow_types import id_type
from batchplan.data.wanted import shown
from batchplan.errors import InputError
from batchplan.text import check_urls

DEFAULT_ID = "id"
IDS = "integers or strings as ids"


def choose_ids(schema: pa.Schema, name: str | None, where: str, required: bool) -> str | None:
    """Return the id column: ``name``, else ``id`` if `id_type` knows its type, else None.

    Raises:
        InputError: the named column is missing (if ``required``) or of another type.
    """
    if name is None:
        exists = schema.get_field_index(DEFAULT_ID) >= 0
        return DEFAULT_ID if exists and id_type(schema.field(DEFAULT_ID).type) else None
    if not name or (not required and name not in schema.names):
        return None
    read_type(schema, name, where, id_type, IDS)
    return name


def read_type(
    schema: pa.Schema, name: str, where: str, kind: Callable[[pa.DataType], Any], expected: str
) -> Any:
    """Return what ``kind`` returns for the type of a column, such as the type in which to read it.

    Raises:
        InputError: as `require_column`; or ``kind`` returns None or False, since the type is none
            of those ``expected``.
    """
    require_column(schema, name, where)
    if not (found := kind(got := schema.field(name).type)):
        raise InputError(f"{where} column {name!r}: got {got!s:.80}, expected {expected}")
    return found


def require_column(schema: pa.Schema, name: str, where: str) -> None:
    """Refuse a name that the schema lacks or has more than once."""
    check_urls(name)
    if (count := schema.names.count(name)) != 1:
        state = "there is no such column" if count == 0 else f"there are {count} of that name"
        raise InputError(f"{where}: column {name!r}: {state}; {columns_of(schema)}")


def columns_of(schema: pa.Schema) -> str:
    """Return a text that lists the columns and their types."""
    return shown("columns", [f"{field.name!r:.60} {field.type!s:.60}" for field in schema])
