"""Chooses the id column of a schema, and names its columns."""

import pyarrow as pa

from batchplan.data.arrow_types import id_type
from batchplan.data.wanted import shown
from batchplan.errors import InputError
from batchplan.text import check_urls

DEFAULT_ID = "id"


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
    require_column(schema, name, where)
    if id_type(schema.field(name).type) is None:
        got = schema.field(name).type
        raise InputError(f"{where} column {name!r}: got {got}, expected integers or strings as ids")
    return name


def require_column(schema: pa.Schema, name: str, where: str) -> None:
    """Refuse a name that the schema lacks or has more than once."""
    check_urls(name)
    if (count := schema.names.count(name)) != 1:
        state = "there is no such column" if count == 0 else f"there are {count} of that name"
        raise InputError(f"{where}: column {name!r}: {state}; {columns_of(schema)}")


def columns_of(schema: pa.Schema) -> str:
    """Return a text that lists the columns and their types."""
    return shown("columns", [f"{field.name!r:.60} {field.type!s:.60}" for field in schema])
