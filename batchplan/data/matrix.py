"""A side of the data: rows in one or more arrays or mapped files."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchplan.data.dtypes import stored_dtype, widened
from batchplan.files.remote import ShardPath
from batchplan.typing import Int64Array

BLOCK_BYTES = 8 << 20  # in memory during a step of reading, converting or checking
_NAMED = 5  # rows that an error message names


# Makes an array of a shape and a dtype, in memory or elsewhere.
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]


class RowMatrix:
    """An N x d matrix over one or more segments (mapped files or arrays), read lazily.

    Segments of bfloat16 and int8 are kept, and converted to float32 when rows are read.

    Attributes:
        shape: (N, d).
        dtype: float16 or float32, native endian.
        kept: the dtype of the segments.
    """

    def __init__(self, segments: Sequence[NDArray[Any]]) -> None:
        """Segments are (n, d) and C-contiguous, with equal d and dtype; callers check this."""
        # Plain read-only views are cheaper to slice than np.memmap, and give compiled code a single
        # kind of array, whether the rows come from a file or from memory.
        self._segments = [segment.view(np.ndarray) for segment in segments]
        for segment in self._segments:
            segment.flags.writeable = False
        self._starts = list(accumulate(map(len, self._segments), initial=0))
        self.shape: tuple[int, int] = (self._starts[-1], self._segments[0].shape[1])
        self.kept = self._segments[0].dtype
        self.dtype = stored_dtype(self.kept, "segment")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowMatrix({self.shape[0]} x {self.shape[1]} {self.dtype})"

    def pieces(self, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield rows ``start`` to ``stop``, one array per segment: views, which copy nothing,
        unless they are widened."""
        index = bisect_right(self._starts, start) - 1
        while start < stop:
            base, end = self._starts[index], min(stop, self._starts[index + 1])
            yield widened(self._segments[index][start - base : end - base])
            start, index = end, index + 1

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop``, clipped as a slice is.

        Returns:
            (stop - start, d), C-contiguous, of the dtype of the matrix: a read-only view if they
            are in one segment of that dtype, else a copy.
        """
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        pieces = list(self.pieces(start, stop))
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty((0, self.shape[1]), self.dtype)

    def take(self, indices: ArrayLike) -> NDArray[Any]:
        """Return the rows at ``indices``, in any order, repeats allowed.

        Returns:
            (len(indices), d), a new C-contiguous array of the dtype of the matrix.

        Raises:
            IndexError: an index is not an integer from 0 to N - 1, or the indices are not 1-d.
        """
        rows = np.asarray(indices)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise IndexError(
                f"got {rows.ndim}-dimensional {rows.dtype}, expected 1-dimensional integers"
            )
        rows = rows.astype(np.int64, copy=False)
        if rows.size and (rows.min() < 0 or rows.max() >= self.shape[0]):
            raise IndexError(
                f"got rows {rows.min()} to {rows.max()}, expected 0 to {self.shape[0] - 1}"
            )
        if len(self._segments) == 1:
            return widened(self._segments[0].take(rows, axis=0))
        return self._gather(rows)

    def filled(self, places: Int64Array, others: "RowMatrix") -> "RowMatrix":
        """Return a copy with the rows at ``places`` taken from another matrix; without places,
        itself."""
        if not len(places):
            return self
        rows = self.rows(0, len(self)).astype(np.result_type(self.dtype, others.dtype))
        rows[places] = others.take(places)
        return RowMatrix([rows])

    def _gather(self, rows: Int64Array) -> NDArray[Any]:
        """`take` across segments, with one gather per segment."""
        homes = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(homes, kind="stable")
        present, begins = np.unique(homes[order], return_index=True)
        out = np.empty((rows.size, self.shape[1]), self.dtype)
        for home, places in zip(present, np.split(order, begins[1:]), strict=False):
            out[places] = widened(self._segments[home][rows[places] - self._starts[home]])
        return out


@dataclass(frozen=True)
class Shard:
    """An input file: its path, its side (``x``, ``y``, or ``xy`` for both) and its rows.

    ``location`` is where a file with columns can be opened again.
    """

    path: str
    side: str
    rows: int
    location: ShardPath | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Side:
    """A matrix and its shards, so that errors can name the file of a row."""

    name: str
    matrix: RowMatrix
    shards: tuple[Shard, ...]

    def place(self, row: int) -> str:
        """``shard.npy row 17`` for a row of the whole side, both counted from 0."""
        starts = list(accumulate((shard.rows for shard in self.shards), initial=0))
        index = bisect_right(starts, row) - 1
        return f"{self.shards[index].path} row {row - starts[index]}"

    def places(self, rows: Int64Array) -> str:
        """Name the first of the given rows: ``a.npy row 3, a.npy row 7 and 12 more``."""
        named = ", ".join(self.place(int(row)) for row in rows[:_NAMED])
        return f"{named} and {len(rows) - _NAMED} more" if len(rows) > _NAMED else named
