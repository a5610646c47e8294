"""`Source`: the rows of all files of a data set, with some of their columns."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import cast

import pyarrow as pa

from batchplan.data.arrow_types import decoded_bytes, storage
from batchplan.data.columns import choose_ids, require_column
from batchplan.data.formats import arrow, jsonl, parquet
from batchplan.data.formats.decoding import decoding
from batchplan.data.formats.tables import ROWS_AT_ONCE, Piece, TableFiles, TableFormat
from batchplan.data.ids import Ids, checked_ids
from batchplan.data.shards import find_files, note_empty, order_of
from batchplan.errors import InputError
from batchplan.files.inputs import PathLike
from batchplan.files.remote import ShardPath, no_url
from batchplan.options import ROW_COLUMN, ShardOrder
from batchplan.runtime import Runtime

FORMATS = {
    ".parquet": parquet.FORMAT, ".arrow": arrow.FORMAT, ".feather": arrow.FORMAT,
    ".jsonl": jsonl.FORMAT, ".ndjson": jsonl.FORMAT, ".json": jsonl.FORMAT,
}  # fmt: skip
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_EXPECTED = ".parquet, .arrow or .jsonl"
_READ_BYTES = 4 << 20  # of a file, read at once; decoded they may be some times as many
_DECODED_BYTES = 16 << 20  # of some rows that are decoded at once


@dataclass(frozen=True)
class Source:
    """Files of one format, with known columns and numbers of rows.

    Attributes:
        files: the files, with the schema of each.
        schema: the columns that `batches` yields.
        available: all columns.
        order: of the files in folders and globs; None if it makes no difference.
    """

    files: TableFiles[pa.Schema]
    schema: pa.Schema
    available: pa.Schema
    order: ShardOrder | None = None

    @classmethod
    def of(
        cls,
        data: Sequence[PathLike],
        runtime: Runtime,
        columns: Sequence[str] | None = None,
        order: ShardOrder | None = None,
    ) -> "Source":
        """Open files, folders and globs.

        Args:
            data: files, folders and globs, as `find_files` takes them.
            runtime: its observer gets a note of files without rows, which are skipped.
            columns: names of the columns to keep, in this order; None keeps all.
            order: as `find_files` takes it.

        Raises:
            InputError: a path is missing or of another kind, a file is unreadable or has other
                columns than the first, a column is missing, or there are no rows.
        """
        paths = cast("list[Path]", find_files(data, "data", _EXPECTED, _kind_of, no_url, order))
        suffix = paths[0].suffix.lower()
        if suffix not in FORMATS:
            raise InputError(
                f"{paths[0]}: got suffix {suffix or '(none)'}, expected {_EXPECTED}, or a folder "
                "of them"
            )
        form = FORMATS[suffix]
        some = [path for path in paths if form is not jsonl.FORMAT or path.stat().st_size]
        if not some:
            raise InputError(f"{paths[0]}: got 0 rows, expected at least 1; check the file")
        files = TableFiles.of(some, lambda file, _path: file.schema, form)
        note_empty(paths, [*map(str, files.paths)], runtime)
        schemas = [*files.found]
        if form is jsonl.FORMAT:
            for other, path in zip(files.found[1:], files.paths[1:], strict=True):
                with decoding(path, form.name):
                    schemas[0] = jsonl.merge(schemas[0], other)
            schemas = schemas[:1]
        chosen = [
            _chosen(schema, columns, str(path))
            for schema, path in zip(schemas, files.paths, strict=False)
        ]
        schema = _common(chosen, files.paths)
        return cls(files, schema, schemas[0], order_of(files.paths, order))

    @property
    def paths(self) -> tuple[ShardPath, ...]:
        """The files that have rows."""
        return self.files.paths

    @property
    def num_rows(self) -> int:
        """N."""
        return self.files.num_rows

    def ids(self, column: str | None = None) -> tuple[str, pa.Array] | None:
        """Return the name and the values of the column of row ids; None if there is none.

        Args:
            column: its name, by default ``id`` if it exists; empty for none.

        Raises:
            InputError: the column is missing or of another type, or ids are null or not unique.
        """
        where = str(self.paths[0])
        name = choose_ids(self.available, column, where, True)
        if name is None:
            return None
        ids = self._reading(_chosen(self.available, [name], where)).ids(name)
        return name, checked_ids(Ids(ids, f"column {name!r}", self.place))

    def place(self, row: int) -> str:
        """Return the file of a row and its number there, for messages."""
        rows = self.files.rows
        file = bisect(ends := list(accumulate(rows)), row)
        return f"{self.paths[file]} row {row - ends[file] + rows[file]}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order.

        Raises:
            InputError: a file is damaged, or was changed since it was opened.
        """
        for piece in self.pieces():
            yield from _decoded(piece.columns, self.schema)

    def pieces(self) -> Iterator[Piece]:
        """As `batches`, with long texts that repeat in dictionaries."""
        row = self.files.size // self.num_rows + 1
        at_once = min(ROWS_AT_ONCE, max(1, _READ_BYTES // row))
        return self._reading(self.schema).pieces(self.schema.names, at_once)

    def _reading(self, schema: pa.Schema) -> TableFiles[pa.Schema]:
        """Return the files, which give the columns of ``schema``. Values that a line lacks are
        null."""
        if self.files.form is not jsonl.FORMAT:
            return self.files
        form = TableFormat(self.files.form.name, partial(jsonl.open_table, schema=schema))
        return replace(self.files, form=form)


def _kind_of(path: Path) -> str:
    form = FORMATS.get(path.suffix.lower())
    return "" if form is None else form.name


def _chosen(schema: pa.Schema, columns: Sequence[str] | None, where: str) -> pa.Schema:
    """Return the columns to keep, with the metadata of `datasets` about them."""
    for name in schema.names if columns is None else columns:
        require_column(schema, name, where)
    kept = [schema.field(name) for name in (schema.names if columns is None else columns)]
    if ROW_COLUMN in [field.name for field in kept]:
        raise InputError(
            f"{where}: has a column {ROW_COLUMN!r}, which the output uses for row numbers; pass "
            "the data that was planned, or name the other columns with --column"
        )
    if not kept:
        raise InputError(f"{where}: has no columns, expected at least one; check the file")
    known = {key: value for key, value in (schema.metadata or {}).items() if key == b"huggingface"}
    return pa.schema([_plain(field, where) for field in kept], known or None)


def _plain(field: pa.Field, where: str) -> pa.Field:
    """Return the field without dictionaries, which differ between batches, and without views, of
    which Arrow takes no rows."""
    data_type = field.type
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    data_type = pa.large_string() if data_type == pa.string_view() else data_type
    if "dictionary" in str(data_type):
        raise InputError(
            f"{where}: column {field.name!r} is {data_type}, expected no dictionary in lists or "
            "structs; decode it, or name the other columns with --column"
        )
    return pa.field(field.name, data_type, field.nullable)


def _common(schemas: Sequence[pa.Schema], paths: Sequence[ShardPath]) -> pa.Schema:
    """Return the columns of all files. If one has the wide type of text or bytes, or permits nulls,
    so does the result: writers differ in that with the same values."""
    fields = [field for schema in schemas for field in schema]
    types = {(field.name, field.type) for field in fields}
    nullable = {field.name for field in fields if field.nullable}

    def common(field: pa.Field) -> pa.Field:
        wide = _WIDE.get(field.type, field.type)
        kind = wide if (field.name, wide) in types else field.type
        return pa.field(field.name, kind, field.name in nullable)

    schemas = [pa.schema(map(common, schema), schema.metadata) for schema in schemas]
    first = schemas[0]
    for schema, path in zip(schemas, paths, strict=False):
        if {*schema} != {*first}:  # the order of columns may differ
            differs = next(
                (f"{field.name!r} is {field.type}" for field in schema if field not in list(first)),
                f"they are {', '.join(schema.names)}",
            )
            raise InputError(
                f"{path}: its columns are not as in {paths[0]}: {differs:.200}; the files "
                "must be alike, or name columns that are alike with --column"
            )
    return first


def _decoded(columns: Sequence[pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield columns with the types of the schema, in halves while they would take too much."""
    rows = len(columns[0])
    if rows > 1 and sum(map(decoded_bytes, columns)) > _DECODED_BYTES:
        for start, count in ((0, rows // 2), (rows // 2, rows)):
            yield from _decoded([column.slice(start, count) for column in columns], schema)
        return
    types = [storage(field.type) for field in schema]
    typed = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(columns, types, strict=True)
    ]
    whole = [
        pa.ExtensionArray.from_storage(field.type, column) if field.type != kind else column
        for column, field, kind in zip(typed, schema, types, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(whole, schema=schema)
