"""Files with named columns. Vectors are found by type, and decoded once into an array per side.

Such files are compressed by groups of rows, so reading them lazily would decode a group for every
tile again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from batchplan.data.arrow_types import decoded_bytes, id_type, is_text, plain, storage, vector_type
from batchplan.data.columns import IDS, choose_ids, columns_of, read_type
from batchplan.data.dtypes import fill, kept_dtype
from batchplan.data.formats.decoding import decoding
from batchplan.data.formats.lists import VECTORS, dimensions, matrix_of
from batchplan.data.matrix import BLOCK_BYTES, Allocate, RowMatrix, Shard, Side
from batchplan.data.proportion import require_decodable
from batchplan.data.wanted import Wanted, is_negative
from batchplan.errors import InputError
from batchplan.files.kinds import WIDE
from batchplan.files.remote import RemotePath, ShardPath, of_each

ROWS_AT_ONCE = 1 << 16
T = TypeVar("T")

_ID_BYTES = 64  # of an id, on average, whatever the file
_WIDE = 16  # columns of floats without a column of vectors are likely dimensions


class TableFile(NamedTuple):
    """An open file.

    Attributes:
        schema: its columns.
        num_rows: its rows according to its metadata, which reading checks.
        batches: given names of columns and the most rows of a batch, yields all rows in order.
            Text and bytes may be in dictionaries, whatever their type in the schema.
        size: bytes of the file.
    """

    schema: pa.Schema
    num_rows: int
    batches: Callable[[Sequence[str], int], Iterable[pa.RecordBatch]]
    size: int = 0

    def columns(self, names: Sequence[str], rows: int = ROWS_AT_ONCE) -> Iterator[list[pa.Array]]:
        """Yield the named columns as `plain` returns them, batch by batch."""
        for batch in self.batches(names, rows):
            yield [plain(batch.column(batch.schema.get_field_index(name))) for name in names]


@dataclass(frozen=True)
class TableFormat:
    """How to read files with named columns.

    Attributes:
        name: of the format in messages.
        open: reads the schema of a file, given as a pyarrow.NativeFile and as its path for
            messages. It may raise Arrow's exceptions, OSError and ValueError, also later.
        mapped: whether to map local files rather than to read them.
    """

    has_columns: ClassVar = True
    name: str
    open: Callable[[pa.NativeFile, ShardPath], AbstractContextManager[TableFile]]
    mapped: bool = False

    def sources(
        self, paths: Sequence[ShardPath], sides: Sequence[str], wanted: Wanted
    ) -> list["TableSource"]:
        """Read the schemas of these files, and return the `TableSource` of one side or both."""
        return [TableSource(self, paths, sides, wanted)]

    @contextmanager
    def opened(self, path: ShardPath) -> Iterator[TableFile]:
        """Open a file; raises as `decoding`, also in the body."""
        with (
            decoding(path, self.name),
            self._stream(path) as stream,
            self.open(stream, path) as file,
        ):
            yield file._replace(size=stream.size())

    def _stream(self, path: ShardPath) -> Any:
        if isinstance(path, RemotePath):
            return path.open()
        return pa.memory_map(str(path)) if self.mapped else pa.OSFile(str(path))


class Piece(NamedTuple):
    """Some rows of a file.

    Attributes:
        path: of the file.
        first: the number of the first row in the file.
        start: its number in all files.
        columns: the columns that were asked for, as `TableFile.columns` returns them.
    """

    path: ShardPath
    first: int
    start: int
    columns: list[pa.Array]

    @property
    def stop(self) -> int:
        """The number in all files of the row after the last one."""
        return self.start + len(self.columns[0])


@dataclass(frozen=True)
class TableFiles(Generic[T]):
    """Files with columns, whose schemas were checked. Files without rows are left out.

    Attributes:
        form: the format of all.
        paths: of the files, in order.
        rows: of each file.
        found: what the check returned for each file.
        size: bytes of all files.
    """

    form: TableFormat
    paths: tuple[ShardPath, ...]
    rows: tuple[int, ...]
    found: tuple[T, ...]
    size: int

    @classmethod
    def of(
        cls,
        paths: Sequence[ShardPath],
        check: Callable[[TableFile, ShardPath], T],
        form: TableFormat,
    ) -> "TableFiles[T]":
        """Open each file and check its schema.

        Args:
            paths: files of one format.
            check: gets each file that has rows, and its path for messages.
            form: how to read them.

        Raises:
            InputError: a file is damaged or of another kind, or none has rows; or as ``check``.
        """

        def opened(path: ShardPath) -> tuple[ShardPath, int, T, int] | None:
            with form.opened(path) as file:
                if not file.num_rows:
                    return None
                return path, file.num_rows, check(file, path), file.size

        read = [one for one in of_each(opened, paths) if one]
        if not read:
            raise InputError(f"{paths[0]}: got 0 rows, expected at least 1; check the file")
        names, rows, found, sizes = zip(*read, strict=True)
        return cls(form, names, rows, found, sum(sizes))

    @property
    def num_rows(self) -> int:
        """N."""
        return sum(self.rows)

    def alike(self, what: str = "") -> T:
        """Return what the check found in all files.

        Args:
            what: begins to name it in messages.

        Raises:
            InputError: names the first file in which it is another.
        """
        for path, found in zip(self.paths, self.found, strict=True):
            if found != self.found[0]:
                raise InputError(
                    f"{path}{what}: got {found}, expected {self.found[0]} as in {self.paths[0]}; "
                    "the shards of one side must be alike"
                )
        return self.found[0]

    def pieces(self, names: Sequence[str], rows: int = ROWS_AT_ONCE) -> Iterator[Piece]:
        """Yield the named columns of all files, at most ``rows`` rows at a time.

        Raises:
            InputError: a file is damaged, or has another number of rows than when it was opened.
        """
        start = 0
        for path, expected in zip(self.paths, self.rows, strict=True):
            first = 0
            with self.form.opened(path) as file:
                for columns in file.columns(names, rows):
                    first += len(columns[0])
                    if first > expected:
                        break
                    yield Piece(path, first - len(columns[0]), start, columns)
                    start += len(columns[0])
            if first != expected:
                raise InputError(
                    f"{path}: got {first} rows, expected {expected} as when it was opened; the "
                    "file is damaged or was written to: write it again, or run again when it is "
                    "complete"
                )

    def ids(self, name: str) -> pa.Array:
        """Return a column that `choose_ids` chose, with its nulls and duplicates.

        Raises:
            InputError: as `pieces` and `Decoded.add`.
        """
        ids = Decoded(self.size, self.num_rows, f"{self.paths[0]} column {name!r}")
        kind = None
        for piece in self.pieces([name]):
            kind = kind or id_type(piece.columns[0].type)
            ids.add(piece.columns[0], kind)
        return ids.joined()


class Decoded:
    """Ids that are decoded part by part."""

    def __init__(self, size: int, rows: int, where: str) -> None:
        """
        Args:
            size: bytes of the files.
            rows: the number of ids.
            where: the name of the ids in messages.
        """
        self._size, self._usual, self._where = size, _ID_BYTES * rows, where
        self._parts: list[pa.Array] = []
        self._bytes = 0

    def add(self, ids: pa.Array, kind: pa.DataType | None) -> None:
        """Decode more ids, to a type that `id_type` returned.

        Raises:
            InputError: all of them take more memory than the files and the number of ids justify.
        """
        self._bytes += decoded_bytes(ids)
        if self._bytes > self._usual:
            require_decodable(self._bytes, self._size, f"{self._where}: ids")
        self._parts.append(ids.cast(kind))

    def joined(self) -> pa.Array:
        """Return all ids."""
        return pa.concat_arrays(self._parts)


@dataclass(frozen=True)
class _Vectors:
    """A vector column of a file; ``dtype`` is the stored one."""

    name: str
    dim: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _Columns:
    """The columns that are read from a file."""

    vectors: tuple[_Vectors, ...]
    ids: pa.DataType | None

    def __str__(self) -> str:
        vectors = (f"{v.name!r} of {v.dim} dimensions of {v.dtype}" for v in self.vectors)
        return ", ".join([*vectors, *([f"ids of {self.ids}"] if self.ids else [])])


class TableSource:
    """One side or both in files with columns. The schemas are checked here, `read` reads the data.

    Attributes:
        sides: x and y, if they are here, and ``negatives`` once for each mined negative.
        column: the first one, for messages.
        rows: N.
        shapes: the name, N and d of each side.
        counts: rows of each file that has any, by its path.
        id: name of the id column, or None.
        need, kept: bytes of memory that `read` allocates, and bytes that it keeps.
        work: rows that `read` decodes.

    Raises:
        InputError: a file is of another kind, has no rows, lacks a column or differs from the first
            shard; or the vector columns are ambiguous.
    """

    def __init__(
        self, form: TableFormat, paths: Sequence[ShardPath], sides: Sequence[str], wanted: Wanted
    ) -> None:
        for path in paths:  # skips those without rows, which may lack types too
            with form.opened(path) as file:
                schema, where = file.schema, str(path)
                if file.num_rows:
                    break
        kinds = ((field.name, vector_type(field.type)) for field in schema)
        found = wanted.vectors({name: _dtype(kind) for name, kind in kinds if kind})
        wide = sum(map(pa.types.is_floating, schema.types))
        if not found and wide >= _WIDE:
            raise InputError(
                f"{where}: got a column for each of {wide} dimensions, expected {VECTORS}; "
                f"{WIDE.format(path=where, kind=form.name.lower())}"
            )
        texts = [field.name for field in schema if is_text(field.type) and field.name != "id"]
        if texts and not found:
            raise InputError(
                f"{where}: got texts ({', '.join(texts[:3])}), expected vectors; plan texts with "
                "batchplan plan --model NAME, from the model's token vectors in seconds, or with "
                "--embed too, from the whole model (others read plan.vectors next to plan.npy)"
            )
        names, mined = wanted.choose(found, sides, where, columns_of(schema))
        # If each side has its own files, either may have the ids.
        self.id = choose_ids(schema, wanted.id, where, len(sides) == 2)
        self.sides = (*sides[: len(names)], *["negatives"] * len(mined))
        held = "".join(sides[: len(names)])
        held += f"+{len(mined)}" if mined and names else "negatives" * bool(mined)

        def columns(file: TableFile, path: ShardPath) -> _Columns:
            ids = self.id or choose_ids(file.schema, wanted.id, str(path), False)  # only here
            return _columns(file, path, (*names, *mined), ids)

        self._files = TableFiles.of(paths, columns, form)
        self._columns = self._files.alike()
        self._shards = tuple(
            Shard(str(path), held, rows, location=path)
            for path, rows in zip(self._files.paths, self._files.rows, strict=True)
        )
        vectors = self._columns.vectors
        self.column = f"column {vectors[0].name!r}"
        self.counts = {shard.path: shard.rows for shard in self._shards}
        self.rows = self.work = sum(self.counts.values())
        dims = [vector.dim for vector in vectors]
        self.shapes = [(name, self.rows, dim) for name, dim in zip(self.sides, dims, strict=True)]
        self._width = sum(vector.dim * vector.dtype.itemsize for vector in vectors)
        # While Arrow decodes, it also keeps pages, levels and batches: up to 16 blocks as measured,
        # whatever the size of row groups.
        self.kept = self.rows * self._width
        self.need = self.kept + min(3 * self.kept, 16 * BLOCK_BYTES)

    def read(
        self, advance: Callable[[int], None], allocate: Allocate
    ) -> tuple[list[Side], pa.Array | None]:
        """Decode the sides, into arrays from ``allocate``, and the ids. Call ``advance`` with the
        number of rows decoded.

        Raises:
            InputError: a file is damaged, or a row is null, ragged, has a null or overflows.
        """
        vectors, files = self._columns.vectors, self._files
        outs = [allocate((self.rows, v.dim), v.dtype) for v in vectors]
        ids = Decoded(files.size, self.rows, f"{files.paths[0]} column {self.id!r}")
        names = [*(vector.name for vector in vectors), *([self.id] if self.id else [])]
        for path, first, start, columns in files.pieces(names, max(1, BLOCK_BYTES // self._width)):
            rows = slice(start, start + len(columns[0]))
            for side, vector, column, out in zip(self.sides, vectors, columns, outs, strict=False):

                def place(row: int, name: str = vector.name) -> str:
                    return f"{path} row {first + row}, column {name!r}"  # noqa: B023

                if side == "negatives" and column.null_count:  # these rows have fewer
                    out[rows] = 0
                    _fill_valid(out[rows], column, vector.dim, place)
                else:
                    fill(out[rows], matrix_of(column, vector.dim, place))
            if self.id:
                ids.add(columns[-1], self._columns.ids)
            advance(len(columns[0]))
        sides = [
            Side(side, RowMatrix([out]), self._shards)
            for side, out in zip(self.sides, outs, strict=True)
        ]
        return sides, ids.joined() if self.id else None


def _fill_valid(out: NDArray[Any], column: pa.Array, dim: int, place: Callable[[int], str]) -> None:
    """Copy the rows of a column of lists that are not null into ``out``."""
    places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    rows = np.empty((len(places), dim), out.dtype)
    fill(rows, matrix_of(column.drop_null(), dim, lambda row: place(int(places[row]))))
    out[places] = rows


def _dtype(values: pa.DataType) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(values.to_pandas_dtype())
    return dtype


def _columns(
    file: TableFile, path: ShardPath, names: Sequence[str], id_name: str | None
) -> _Columns:
    schema = file.schema
    vectors = []
    for name in names:
        values = read_type(schema, name, str(path), vector_type, VECTORS)
        where, column_type = f"{path} column {name!r}", schema.field(name).type
        dtype = kept_dtype(_dtype(values), where)
        # Read even if the type states the length of lists, which decides how much is allocated.
        first = next((rows[0] for (rows,) in file.columns([name], 1) if len(rows)), None)
        if is_negative(name) and first is not None and not first.is_valid:
            valid = (rows.drop_null() for (rows,) in file.columns([name], ROWS_AT_ONCE))
            first = next((rows[0] for rows in valid if len(rows)), None)
        vectors.append(_Vectors(name, dimensions(storage(column_type), first, where), dtype))
    if id_name is None:
        return _Columns(tuple(vectors), None)
    return _Columns(tuple(vectors), read_type(schema, id_name, str(path), id_type, IDS))
