"""Files of one matrix. They are mapped, or copied if they must be converted."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import prod
from typing import IO, Any, BinaryIO, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from batchplan.data.dtypes import fill, kept_dtype, require_matrix, widened
from batchplan.data.matrix import BLOCK_BYTES, Allocate, RowMatrix, Shard, Side
from batchplan.data.wanted import Wanted
from batchplan.errors import InputError
from batchplan.files.kinds import other_kind
from batchplan.files.reading import readable
from batchplan.files.remote import RemotePath, ShardPath, of_each, opened_file

Unpack = Callable[[BinaryIO], AbstractContextManager[IO[bytes]]]


@dataclass(frozen=True)
class ArrayHeader:
    """The header of a file.

    Attributes:
        shape: (rows, dimensions); others are refused.
        dtype: of the numbers as stored.
        fortran: whether they are stored column by column.
        stop: the byte at which they end; None for the end of the file.
        counts: whether each row begins with the number of its dimensions, as int32.
        unpack: opens the numbers of a compressed file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False
    stop: int | None = None
    counts: bool = False
    unpack: Unpack | None = None


@dataclass(frozen=True)
class ArrayFormat:
    """How to read files of one matrix. `sources` checks the headers against the file sizes.

    Attributes:
        name: of the format in messages.
        read_header: reads the header of an open file, up to the first number; the numbers fill the
            rest of the file. It may raise any exception if the bytes are not a header.
        matrix: of several in a file, for messages.
    """

    has_columns: ClassVar = False
    name: str
    read_header: Callable[[BinaryIO, ShardPath], ArrayHeader]
    matrix: str = ""

    def sources(
        self, paths: Sequence[ShardPath], sides: Sequence[str], wanted: Wanted
    ) -> "list[ArraySource]":
        """Read the headers of these files, and return the source of one side.

        Raises:
            InputError: as `ArraySource`, or columns were named.
        """
        if len(sides) == 1:  # the ids may be of the other side
            wanted = Wanted(wanted.x, wanted.y)
        wanted.refuse(str(paths[0]))
        return [ArraySource(of_each(self._open, paths), sides[0], self.matrix)]

    def _open(self, path: ShardPath) -> "_Shard":
        """Return the checked header of one file."""
        with opened(path, self.name) as (file, size):
            header = self.read_header(file, path)
            return _Shard(path, header, file, size)


@contextmanager
def opened(path: ShardPath, kind: str) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file to read its header; yield it and its size in bytes.

    Raises:
        InputError: the file is empty or cannot be read, or the body raises any exception.
    """
    with readable(str(path)), opened_file(path, kind) as file:
        size = path.size if isinstance(path, RemotePath) else os.fstat(file.fileno()).st_size
        if size == 0:
            raise InputError(f"{path}: got an empty file (0 bytes), expected {kind}")
        try:
            yield file, size
        except OSError:
            raise
        except Exception as error:
            if (other := other_kind(path, kind)) is not None:
                raise other from error
            if isinstance(error, InputError):
                raise
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise InputError(
                f"{path}: got a header that cannot be read as {kind} ({reason}); the file is "
                "damaged: write it again"
            ) from error


def require_size(path: ShardPath, size: int, expected: int, what: str) -> None:
    """Refuse a file of ``size`` bytes unless its header, ``what`` in the message, gives as many."""
    if size != expected:
        state = "cut short" if size < expected else "too long"
        raise InputError(
            f"{path}: got {size} bytes, expected {expected} for {what}; the file is {state}: write "
            "or copy it again"
        )


class _Shard:
    """A file with a checked header. A local file is mapped while it is open, so that its numbers
    belong to its header."""

    def __init__(self, path: ShardPath, header: ArrayHeader, file: BinaryIO, size: int) -> None:
        shape, self.dtype, offset = header.shape, header.dtype, file.tell()
        self.kept = kept_dtype(self.dtype, str(path))
        require_matrix(shape, str(path))
        # Python integers do not overflow, so this catches any wrong header before it is mapped.
        expected = offset + prod(shape) * self.dtype.itemsize
        if min(shape) < 0:
            raise InputError(f"{path}: the header's shape {shape} is negative; the file is damaged")
        if header.stop is None:
            require_size(path, size, expected, f"the header's shape {shape} of {self.dtype}")
        self.path, self.offset = path, offset
        self._shape, self._counts, self._unpack = shape, header.counts, header.unpack
        self.rows, self.dim = shape[0], shape[1] - self._counts
        self.order: Literal["F", "C"] = "F" if header.fortran and 1 not in shape else "C"
        # Whether the data must be copied, and converted, before use.
        self.copies = isinstance(path, RemotePath) or header.unpack is not None
        aligned = (self.copies or offset % self.dtype.itemsize == 0) and self.dtype.isnative
        self.converts = self.order == "F" or not aligned or self.dtype.itemsize == 8 or self._counts
        self._map: NDArray[Any] | None = None
        if self.rows and not self.copies:
            self._map = np.memmap(file, self.dtype, "r", offset, shape, self.order)

    def load(
        self, dtype: np.dtype[Any], advance: Callable[[int], None], allocate: Allocate
    ) -> NDArray[Any]:
        """Return the mapped file; or its numbers, copied if it is remote or compressed, or
        converted to ``dtype``.

        Raises:
            InputError: a row states another number of dimensions than the first; or the compressed
                data are damaged.
        """
        data = self._copy(advance, allocate) if self._map is None else self._map
        if not self.converts:
            return data
        out = allocate((self.rows, self.dim), dtype)
        step = max(1, BLOCK_BYTES // (self.dim * self.dtype.itemsize))
        for start in range(0, self.rows, step):
            block = np.asarray(data[start : start + step])
            if self._counts:
                block = self._without_counts(block, start)
            fill(out[start : start + step], block if block.dtype == dtype else widened(block))
            advance(len(block))
        return out

    def _without_counts(self, block: NDArray[Any], start: int) -> NDArray[Any]:
        """Return the vectors of rows that each begin with their number of dimensions."""
        counts = block[:, 0].view("<i4")
        if (other := np.flatnonzero(counts != self.dim)).size:
            row = int(other[0])
            raise InputError(
                f"{self.path} row {start + row}: got {counts[row]} dimensions, expected {self.dim} "
                "as in the first row; make all vectors alike, or write the file again"
            )
        return block[:, 1:]

    def _copy(self, advance: Callable[[int], None], allocate: Allocate) -> NDArray[Any]:
        """Copy the numbers of a remote or compressed file, in their stored dtype."""
        flat, width = allocate((prod(self._shape),), self.dtype), self.dim * self.dtype.itemsize
        out: memoryview = flat.view(np.uint8).data

        def copied(count: int) -> None:
            advance(count // width)

        if self._unpack:
            step = max(1, BLOCK_BYTES // width) * width
            with opened(self.path, "NPZ") as (file, _), self._unpack(file) as stream:
                for start in range(0, len(out), step):
                    part = out[start : start + step]
                    block = stream.read(len(part))
                    if len(block) < len(part):
                        raise ValueError("the data end too early")
                    part[:] = block
                    copied(len(part))
        elif isinstance(self.path, RemotePath):
            with readable(str(self.path)):
                self.path.read_into(out, self.offset, width, copied)
        return flat.reshape(self._shape, order=self.order)


class ArraySource:
    """One side in files of one matrix each.

    C-ordered int8, and float16, bfloat16 and float32 of the native byte order, are mapped, or
    copied if they are remote. Fortran order, other byte orders, float64 and unaligned data are
    converted once, rather than again for every tile.

    Attributes:
        sides: the name of the side.
        column: the matrix of several in a file, for messages; else empty.
        rows: N.
        shapes: the name, N and d of the side.
        counts: rows of each file that has any, by its path.
        id: None, since these files have no ids.
        need, kept: bytes of memory that `read` allocates, and keeps.
        work: rows that `read` copies, and rows that it converts.

    Raises:
        InputError: the dtype is not one of embeddings, no shard has rows, or shards differ.
    """

    id = None

    def __init__(self, shards: Sequence[_Shard], side: str, column: str = "") -> None:
        first, shards = shards[0], [shard for shard in shards if shard.rows]  # others are skipped
        if not shards:
            shape = 0, first.dim
            raise InputError(f"{first.path}: got shape {shape}, expected at least 1 row")
        self._shards, self._side, self.sides, self.column = shards, side, (side,), column
        first = shards[0]
        self._dtype = first.kept
        for shard in shards[1:]:
            if (shard.dim, shard.kept) != (first.dim, first.kept):
                raise InputError(
                    f"{shard.path}: got {shard.dim} dimensions of {shard.kept}, expected "
                    f"{first.dim} of {first.kept} as in {first.path}; the shards of side {side} "
                    "must be alike"
                )
        self.counts = {str(shard.path): shard.rows for shard in shards}
        self.rows = sum(self.counts.values())
        self.shapes = [(side, self.rows, first.dim)]
        copied = [shard for shard in shards if shard.copies]
        converted = sum(shard.rows for shard in shards if shard.converts)
        self.work = converted + sum(shard.rows for shard in copied)
        self.need = self.kept = converted * first.dim * self._dtype.itemsize + sum(
            shard.rows * shard.dim * shard.dtype.itemsize for shard in copied
        )

    def read(self, advance: Callable[[int], None], allocate: Allocate) -> tuple[list[Side], None]:
        """Map the shards, or copy or convert them into arrays from ``allocate``. Call ``advance``
        with the number of rows copied or converted."""
        segments = [shard.load(self._dtype, advance, allocate) for shard in self._shards]
        shards = tuple(Shard(str(file.path), self._side, file.rows) for file in self._shards)
        return [Side(self._side, RowMatrix(segments), shards)], None
