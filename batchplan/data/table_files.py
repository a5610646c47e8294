"""Files with columns, of the data or of its rows: opens them, and compares their ids."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchplan.data.arrow_types import id_type
from batchplan.data.candidates import Data
from batchplan.data.columns import DEFAULT_ID, choose_ids, read_type
from batchplan.data.formats import format_of, has_columns, parquet
from batchplan.data.formats.tables import TableFile, TableFiles, TableFormat
from batchplan.data.ids import Ids, check_digest, check_same, whole
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath, located


def table_format(path: ShardPath) -> TableFormat:
    """Return the format of a file with columns. An unknown suffix is read as Parquet."""
    form = format_of(path) if has_columns(path) else None
    return form if isinstance(form, TableFormat) else parquet.FORMAT


def opened(path: ShardPath) -> AbstractContextManager[TableFile]:
    """Open a file with columns, as `table_format` says."""
    return table_format(path).opened(path)


def files_of(side: str, embeddings: Data) -> Sequence[ShardPath]:
    """Return the files with columns of a side, ``x`` or ``y``; none if it has other files."""
    return [one.location for one in embeddings.shards if side in one.side and one.location]


def files_of_column(
    column: str,
    embeddings: Data,
    table: str | Path | None,
    kind: Callable[[pa.DataType], Any],
    expected: str,
    sides: str = "xy",
) -> TableFiles[Any]:
    """Return the files that have a column with a value for each row of the data; arguments and
    errors as `read_type` and `_files_with`.

    Raises:
        InputError: ``kind`` returns something else for another file, or there are more or fewer
            values.
    """
    paths = _files_with(column, embeddings, table, sides)
    files = TableFiles.of(
        paths,
        lambda file, path: read_type(file.schema, column, str(path), kind, expected),
        table_format(paths[0]),
    )
    files.alike(f" column {column!r}")
    # Before reading, since a small file may have a large column.
    check_count(files.num_rows, embeddings.num_rows, f"{paths[0]} column {column!r}")
    return files


def _files_with(
    column: str, embeddings: Data, table: str | Path | None, sides: str
) -> Sequence[ShardPath]:
    """Return the files that have a column; arguments as `load_labels`, and the sides to try, in
    order.

    Raises:
        InputError: the files of the embeddings have no columns.
    """
    if table is not None:
        check_rows(located(table), embeddings)
        return [located(table)]
    files = [files_of(side, embeddings) for side in sides]
    for paths in filter(None, files):
        with opened(paths[0]) as file:
            if column in file.schema.names:
                return paths
    if paths := files[1] or files[0]:
        return paths  # so that the reader says which columns there are
    raise InputError(
        f"labels: column {column!r}: the files of the embeddings hold no columns; give a Parquet "
        "file with one row for each of their rows as label_table (--label-table)"
    )


def check_types(paths: Iterable[ShardPath]) -> None:
    """Refuse columns ``id`` of several files, one of which cannot be compared with the others.

    Raises:
        InputError: names the files and the types.
    """
    found = {}
    for path in paths:
        with opened(path) as file:
            if file.num_rows and file.schema.names.count(DEFAULT_ID) == 1:
                found[path] = file.schema.field(DEFAULT_ID).type
    if len(found) > 1 and None in map(id_type, found.values()):
        held = " and ".join(f"{kind!s:.60} in {path}" for path, kind in found.items())
        raise InputError(
            f"column {DEFAULT_ID!r}: got {held}, which cannot be compared; write integers or "
            "strings, or compare no ids with id_column='' (--id-column '')"
        )


def check_rows(table: ShardPath, embeddings: Data) -> None:
    """Refuse a table of the rows of the data that has other ids, or the same in another order.

    A table without the column that the user named for the data is compared by ``id``. Ids of which
    none is one of the data pass with a warning, since they may be of the other side.

    Raises:
        InputError: as `check_same` and `check_types`.
    """
    check_types_with(embeddings, [table])
    if embeddings.ids is None:
        return
    wanted = None if embeddings.origin is None else embeddings.origin.wanted.id
    own = ids_in(table, wanted)
    if own is not None and len(own.values) == embeddings.num_rows:  # the caller refuses the number
        check_same(Ids(embeddings.ids, "the data"), own, warnings.warn)


def ids_in(table: ShardPath, wanted: str | None, *, strict: bool = False) -> Ids | None:
    """Return the ids of a table: of the column ``wanted``, or of ``id`` if it is None, or if the
    table lacks it and may; None without ids.

    Raises:
        InputError: the table cannot be read, or the column has another type, or is missing if
            ``strict``.
    """

    def chosen(file: TableFile, path: ShardPath) -> str | None:
        named = wanted if strict or wanted in file.schema.names else None
        return choose_ids(file.schema, named, str(path), required=True)

    files = TableFiles.of([table], chosen, table_format(table))
    name = files.alike()
    return None if name is None else Ids(files.ids(name), str(table))


def check_planned(table: ShardPath, digest: str | None, wanted: str | None) -> None:
    """Refuse a table of the rows of a plan that has other ids than were planned.

    Args:
        digest: of the planned ids; None if they are not known.
        wanted: the column of ids; None for ``id``, if there is one, "" compares none.

    Raises:
        InputError: there is no such column, or nothing to compare it with; or as `check_digest`,
            `whole` and `ids_in`.
    """
    if wanted and not digest:
        raise InputError(
            f"id column: got {wanted!r}, but the plan has no row ids to compare with; leave it out"
        )
    if digest and wanted != "" and (own := ids_in(table, wanted, strict=True)) is not None:
        check_digest(digest, whole(own))


def check_types_with(embeddings: Data, others: Sequence[ShardPath]) -> None:
    """`check_types` for the files of the data and the first of some others, unless a column of ids
    is named."""
    if embeddings.origin is None or embeddings.origin.wanted.id is None:
        firsts = [*files_of("x", embeddings)[:1], *files_of("y", embeddings)[:1], *others[:1]]
        check_types(dict.fromkeys(firsts))


def check_count(count: int, num_rows: int, where: str) -> None:
    """Refuse more or fewer values than rows; ``where`` begins the message."""
    if count != num_rows:
        raise InputError(
            f"{where}: got {count} values, expected {num_rows}, one for each row of the data "
            "in the same order"
        )
