"""Files with named columns. Vectors are found by type, and decoded once into an array per side.

Such files are compressed by groups of rows, so reading them lazily would decode a group for every
tile again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from batchplan.data.arrow_types import id_type, plain, storage, vector_type
from batchplan.data.columns import choose_ids, columns_of, require_column
from batchplan.data.dtypes import fill, kept_dtype
from batchplan.data.formats.lists import VECTORS, dimensions, matrix_of
from batchplan.data.matrix import BLOCK_BYTES, Allocate, RowMatrix, Shard, Side
from batchplan.data.wanted import Wanted, is_negative
from batchplan.errors import InputError, ResourceError
from batchplan.files.kinds import DECRYPT, WIDE, other_kind
from batchplan.files.reading import open_regular
from batchplan.files.remote import RemotePath, ShardPath, of_each

_IDS_AT_ONCE = 1 << 16
_ROWS_AT_ONCE = 4096  # of a column, in search of a row that is not null
_WIDE = 16  # columns of floats without a column of vectors are likely dimensions


class TableFile(NamedTuple):
    """An open file.

    Attributes:
        schema: its columns.
        num_rows: its rows according to its metadata, which reading checks.
        batches: given names of columns and the most rows of a batch, yields all rows in order.
    """

    schema: pa.Schema
    num_rows: int
    batches: Callable[[Sequence[str], int], Iterable[pa.RecordBatch]]

    def columns(self, names: Sequence[str], rows: int) -> Iterator[list[pa.Array]]:
        """Yield the named columns as `plain` returns them, batch by batch."""
        for batch in self.batches(names, rows):
            yield [plain(batch.column(batch.schema.get_field_index(name))) for name in names]

    def ids(self, name: str) -> pa.Array:
        """Return a column that `choose_ids` chose, with its nulls and duplicates."""
        kind = id_type(self.schema.field(name).type)
        parts = [values.cast(kind) for (values,) in self.columns([name], _IDS_AT_ONCE)]
        return pa.concat_arrays(parts) if parts else pa.array([], kind)


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
    ) -> list[TableSource]:
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
            yield file

    def _stream(self, path: ShardPath) -> Any:
        if isinstance(path, RemotePath):
            return path.open()
        return pa.memory_map(str(path)) if self.mapped else pa.OSFile(str(path))


@contextmanager
def decoding(path: ShardPath, kind: str) -> Iterator[None]:
    """Turn what a reader raises in the body into our own exceptions, which name the file.

    Raises:
        InputError: the file is missing, empty or damaged, or is not of this kind.
        ResourceError: there is not enough memory.
    """
    if isinstance(path, Path):
        with open_regular(path, kind) as stream:  # first, so that system errors keep their messages
            size = os.fstat(stream.fileno()).st_size
    else:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the URL")
        size = path.size
    if size == 0:
        raise InputError(f"{path}: got an empty file (0 bytes), expected {kind}")
    try:
        yield
    except (InputError, ResourceError):
        raise
    except MemoryError as error:
        raise ResourceError(f"{path}: not enough memory to decode it") from error
    # A damaged file may raise any of these, including UnicodeDecodeError.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(". ")
        if (other := other_kind(path, kind)) is not None:
            raise other from error
        mend = "the file is damaged or of another kind: write or copy it again"
        if isinstance(error, NotImplementedError):
            mend = f"pyarrow {pa.__version__} lacks this: write it with other types or encodings"
        elif "ecrypt" in reason:
            mend = DECRYPT
        raise InputError(f"{path}: cannot be read as {kind} ({reason:.200}); {mend}") from error


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
        sides: those of x and y that are here, and ``negatives`` once for each mined negative.
        column: the first one, for messages.
        rows, dims: N, and d of each side.
        counts: rows of each file that has any, by its path.
        id: name of the id column, or None.
        need, kept: bytes of memory that `read` allocates, and bytes that it keeps.
        work: rows that `read` decodes.

    Raises:
        InputError: a file is of another kind, has no rows, lacks a column or differs from the first
            shard; or the vector columns are ambiguous.
    """

    def __init__(
        self,
        form: TableFormat,
        paths: Sequence[ShardPath],
        sides: Sequence[str],
        wanted: Wanted,
    ) -> None:
        self._form = form
        for path in paths:  # skips those without rows, which may lack types too
            with form.opened(path) as file:
                schema, where = file.schema, str(path)
                if file.num_rows:
                    break
        types = {field.name: vector_type(field.type) for field in schema}
        vectors = wanted.vectors({n: _dtype(kind) for n, kind in types.items() if kind})
        wide = sum(map(pa.types.is_floating, schema.types))
        if not vectors and wide >= _WIDE:
            raise InputError(
                f"{where}: got a column for each of {wide} dimensions, expected {VECTORS}; "
                f"{WIDE.format(path=where, kind=form.name.lower())}"
            )
        names, mined = wanted.choose(vectors, sides, where, columns_of(schema))
        # If each side has its own files, either may have the ids.
        self.id = choose_ids(schema, wanted.id, where, len(sides) == 2)
        self.sides = (*sides[: len(names)], *["negatives"] * len(mined))
        held = "".join(sides[: len(names)])
        held += f"+{len(mined)}" if mined and names else "negatives" * bool(mined)

        def columns(path: ShardPath) -> tuple[ShardPath, _Columns, Shard] | None:
            with form.opened(path) as file:
                if not file.num_rows:
                    return None
                shard = Shard(str(path), held, file.num_rows, location=path)
                return path, _columns(file, path, (*names, *mined), self.id), shard

        if not (read := [one for one in of_each(columns, paths) if one]):
            raise InputError(f"{where}: got 0 rows, expected at least 1; leave this file out")
        paths, by_file, shards = zip(*read, strict=True)
        for path, found in zip(paths, by_file, strict=True):
            if found != by_file[0]:
                raise InputError(
                    f"{path}: got {found}, expected {by_file[0]} as in {paths[0]}; the shards of "
                    "one side must be alike"
                )
        self._columns, self._shards, self._paths = by_file[0], shards, paths
        self.column = f"column {by_file[0].vectors[0].name!r}"
        self.counts = {str(shard.path): shard.rows for shard in shards}
        self.rows = self.work = sum(self.counts.values())
        self.dims: tuple[int, ...] = tuple(vector.dim for vector in by_file[0].vectors)
        self._width = sum(vector.dim * vector.dtype.itemsize for vector in by_file[0].vectors)
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
        outs = [allocate((self.rows, v.dim), v.dtype) for v in self._columns.vectors]
        ids: list[pa.Array] = []
        start = 0
        for path, shard in zip(self._paths, self._shards, strict=True):
            stop = start + shard.rows
            self._read_file(path, shard.rows, [out[start:stop] for out in outs], ids, advance)
            start = stop
        sides = [
            Side(side, RowMatrix([out]), self._shards)
            for side, out in zip(self.sides, outs, strict=True)
        ]
        return sides, pa.concat_arrays(ids) if self.id else None

    def _read_file(
        self,
        path: ShardPath,
        rows: int,
        outs: list[NDArray[Any]],
        ids: list[pa.Array],
        advance: Callable[[int], None],
    ) -> None:
        vectors = self._columns.vectors
        names = [*(vector.name for vector in vectors), *([self.id] if self.id else [])]
        start = 0
        with self._form.opened(path) as file:
            for columns in file.columns(names, max(1, BLOCK_BYTES // self._width)):
                stop = start + len(columns[0])
                if stop > rows:
                    break
                for side, vector, column, out in zip(
                    self.sides, vectors, columns, outs, strict=False
                ):

                    def place(row: int, name: str = vector.name, start: int = start) -> str:
                        return f"{path} row {start + row}, column {name!r}"

                    if side == "negatives" and column.null_count:  # these rows have fewer
                        out[start:stop] = 0
                        _fill_valid(out[start:stop], column, vector.dim, place)
                    else:
                        fill(out[start:stop], matrix_of(column, vector.dim, place))
                if self.id:
                    ids.append(columns[-1].cast(self._columns.ids))
                advance(stop - start)
                start = stop
        if start != rows:
            raise InputError(
                f"{path}: got {start} rows, expected {rows} according to its metadata; the file is "
                "damaged: write or copy it again"
            )


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
        require_column(schema, name, str(path))
        where = f"{path} column {name!r}"
        column_type = schema.field(name).type
        if (values := vector_type(column_type)) is None:
            raise InputError(f"{where}: got {column_type!s:.80}, expected {VECTORS}")
        dtype = kept_dtype(_dtype(values), where)
        # Read even if the type states the length of lists, which decides how much is allocated.
        first = next((rows[0] for (rows,) in file.columns([name], 1) if len(rows)), None)
        if is_negative(name) and first is not None and not first.is_valid:
            valid = (rows.drop_null() for (rows,) in file.columns([name], _ROWS_AT_ONCE))
            first = next((rows[0] for rows in valid if len(rows)), None)
        vectors.append(_Vectors(name, dimensions(storage(column_type), first, where), dtype))
    if id_name is None:
        return _Columns(tuple(vectors), None)
    choose_ids(schema, id_name, str(path), required=True)
    return _Columns(tuple(vectors), id_type(schema.field(id_name).type))
