"""Parquet shards: columns found by type, decoded once into one array a side.

Row groups are compressed, so reading them lazily would decode the same group again for every tile
that touches it. Each side is decoded once, batch by batch, into an array of the dtype that is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data.columns import (
    Wanted,
    choose_ids,
    choose_vectors,
    require_column,
    value_type,
)
from batchplan.data.dtypes import fill, overflow_error, stored_dtype
from batchplan.data.ids import id_type
from batchplan.data.matrix import BLOCK_BYTES, RowMatrix, Shard, Side
from batchplan.errors import InputError, ResourceError
from batchplan.files.reading import open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_SMALL = 32 << 20  # bytes of a file whose column chunks may be in memory whole


@dataclass(frozen=True)
class _Vectors:
    """A vector column as one file has it; ``dtype`` is the one that is kept."""

    name: str
    dim: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _Footer:
    rows: int
    vectors: tuple[_Vectors, ...]
    ids: pa.DataType | None

    def describe(self) -> str:
        vectors = (f"{v.name!r} of {v.dim} dimensions of {v.dtype}" for v in self.vectors)
        return ", ".join([*vectors, *([f"ids of {self.ids}"] if self.ids else [])])


class ParquetSource:
    """One side or both in Parquet files; footers are read and checked here, data by `read`.

    Attributes:
        rows, dims: N, and d of each side held.
        id: name of the id column, or None.
        need: bytes of memory that `read` allocates, most of which is kept.
        work: rows that `read` decodes.

    Raises:
        InputError: a file is no Parquet file, has no rows, lacks a column or is unlike its fellows;
            or the vector columns are ambiguous.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        sides: Sequence[str],
        wanted: Wanted,
        *,
        cast: bool = False,
    ) -> None:
        with opened(paths[0]) as file:
            names = choose_vectors(file.schema_arrow, wanted, sides, str(paths[0]))
            # Of two sides, each in files of its own, either may hold the ids.
            self.id = choose_ids(file.schema_arrow, wanted, str(paths[0]), len(sides) == 2)
        footers = [_read_footer(path, names, self.id, cast) for path in paths]
        first = footers[0]
        for path, footer in zip(paths, footers, strict=True):
            if (footer.vectors, footer.ids) != (first.vectors, first.ids):
                raise InputError(
                    f"{path}: got {footer.describe()}, expected {first.describe()} as in "
                    f"{paths[0]}; the shards of one side must be alike"
                )
        self._sides = sides[: len(names)]
        self._vectors, self._id_type = first.vectors, first.ids
        self._shards = tuple(
            Shard(str(path), "".join(self._sides), footer.rows)
            for path, footer in zip(paths, footers, strict=True)
        )
        self.rows = sum(shard.rows for shard in self._shards)
        self.dims: tuple[int, ...] = tuple(vector.dim for vector in first.vectors)
        self.work = self.rows
        self._width = sum(vector.dim * vector.dtype.itemsize for vector in first.vectors)
        # Beside the arrays that are kept, Arrow holds pages, levels and batches while it decodes:
        # measured at up to 16 blocks, whatever the size of the row groups.
        kept = self.rows * self._width
        self.need = kept + min(3 * kept, 16 * BLOCK_BYTES)

    def read(self, advance: Callable[[int], None]) -> tuple[list[Side], pa.Array | None]:
        """Decode the sides and ids; ``advance`` hears of rows decoded.

        Raises:
            InputError: a file is damaged, or a row is null, ragged, holds a null or overflows.
        """
        import pyarrow as pa

        outs = [np.empty((self.rows, vector.dim), vector.dtype) for vector in self._vectors]
        id_chunks: list[pa.Array] = []
        start = 0
        for shard in self._shards:
            stop = start + shard.rows
            self._read_file(shard, [out[start:stop] for out in outs], id_chunks, advance)
            start = stop
        sides = [
            Side(side, RowMatrix([out]), self._shards)
            for side, out in zip(self._sides, outs, strict=True)
        ]
        return sides, pa.concat_arrays(id_chunks) if self.id else None

    def _read_file(
        self,
        shard: Shard,
        outs: list[NDArray[Any]],
        id_chunks: list[pa.Array],
        advance: Callable[[int], None],
    ) -> None:
        names = [*(vector.name for vector in self._vectors), *([self.id] if self.id else [])]
        start = 0
        with opened(Path(shard.path)) as file:
            step = max(1, BLOCK_BYTES // self._width)
            for batch in file.iter_batches(step, columns=names):
                stop = start + batch.num_rows
                if stop > shard.rows:
                    break
                for vector, out in zip(self._vectors, outs, strict=True):
                    column = batch.column(batch.schema.get_field_index(vector.name))
                    _decode(column, out[start:stop], vector, shard.path, start)
                if self.id:
                    column = batch.column(batch.schema.get_field_index(self.id))
                    id_chunks.append(column.cast(self._id_type))
                advance(batch.num_rows)
                start = stop
        if start != shard.rows:
            raise InputError(
                f"{shard.path}: got {start} rows, expected {shard.rows} as its footer says; "
                "the file is damaged: write or copy it again"
            )


def _read_footer(path: Path, names: Sequence[str], id_name: str | None, cast: bool) -> _Footer:
    with opened(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        if rows == 0:
            raise InputError(f"{path}: got 0 rows, expected at least 1; leave this file out")
        vectors = []
        for name in names:
            require_column(schema, name, str(path))
            where = f"{path} column {name!r}"
            given = schema.field(name).type
            if (values := value_type(given)) is None:
                raise InputError(f"{where}: got {given}, expected lists of float16 or float32")
            dtype = stored_dtype(np.dtype(values.to_pandas_dtype()), cast, where)
            vectors.append(_Vectors(name, _dimensions(file, name, where), dtype))
        ids = None
        if id_name is not None:
            require_column(schema, id_name, str(path))
            if (ids := id_type(schema.field(id_name).type)) is None:
                raise InputError(f"{path} column {id_name!r}: got no integers or strings as ids")
    return _Footer(rows, tuple(vectors), ids)


def _dimensions(file: pq.ParquetFile, name: str, where: str) -> int:
    """The length of a column's lists: by its type, or by its first row."""
    given = file.schema_arrow.field(name).type
    if hasattr(given, "list_size"):
        dim = given.list_size
    else:
        first = next(
            (
                batch.column(batch.schema.get_field_index(name))[0]
                for batch in file.iter_batches(1, columns=[name])
                if batch.num_rows
            ),
            None,
        )
        if first is None or not first.is_valid:
            raise InputError(f"{where}, row 0: got null, expected a vector; fill or drop the row")
        dim = len(first)
    if dim == 0:
        raise InputError(f"{where}: got lists of 0 values, expected at least 1 dimension")
    return int(dim)


def _decode(
    column: pa.Array, out: NDArray[Any], vector: _Vectors, path: str, first_row: int
) -> None:
    """Check one batch of lists and put its numbers into ``out``, an (n, d) array."""

    def where(row: int) -> str:
        return f"{path} row {first_row + row}, column {vector.name!r}"

    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{where(row)}: got null, expected a vector; fill or drop the row")
    if not hasattr(column.type, "list_size"):
        lengths = np.diff(column.offsets.to_numpy())
        if (ragged := np.flatnonzero(lengths != vector.dim)).size:
            row = int(ragged[0])
            raise InputError(
                f"{where(row)}: got a list of {lengths[row]} values, expected {vector.dim} as in "
                "the first row; make all vectors alike"
            )
    values = column.flatten()
    if values.null_count:
        position = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        row, element = divmod(position, vector.dim)
        raise InputError(
            f"{where(row)}: got null as element {element} (of {values.null_count} nulls), expected "
            "numbers; recompute or drop the row"
        )
    block = values.to_numpy().reshape(out.shape)
    if (bad := fill(out, block)) is not None:
        raise overflow_error(where(bad), block[bad])


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """An open Parquet file, in whose body Arrow's exceptions become our own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Opened here first, so that the system's own refusal is told in its own words.
    with open_regular(path, "a Parquet file") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise InputError(f"{path}: got an empty file (0 bytes), expected a Parquet file")
    try:
        # A small read buffer instead of pre-buffering: whole column chunks need not be in memory.
        # Not for small files, though: Arrow makes room in it for what a page claims, which where
        # the page is damaged may be 2 GB.
        buffer = 0 if path.stat().st_size < _SMALL else 1 << 20
        with pq.ParquetFile(
            path, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
        ) as file:
            yield file
    except (InputError, ResourceError):
        raise
    except MemoryError as error:
        raise ResourceError(f"{path}: not enough memory to decode it") from error
    # Damage surfaces as many kinds, from Arrow's own to OSError and UnicodeDecodeError.
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(". ")
        raise InputError(
            f"{path}: cannot be read as Parquet ({reason}); the file is damaged or of another "
            "kind: write or copy it again"
        ) from error
