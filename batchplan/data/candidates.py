"""`Candidates`: mined lists of rows, with scores, in place of vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchplan.data.embeddings import Embeddings
from batchplan.data.matrix import Shard
from batchplan.errors import InputError
from batchplan.files.remote import located
from batchplan.files.scratch import scratch_array
from batchplan.typing import Float32Array, Int64Array

if TYPE_CHECKING:
    import pyarrow as pa


_HELD_BYTES = 64 << 20  # of some rows' lists in memory; longer ones go to temporary files
_AT_ONCE, _VALUES = 1 << 14, 1 << 20  # rows, and candidates, that are checked at once


@dataclass(frozen=True, eq=False)
class Candidates:
    """For each of N rows, other rows whose documents are most similar to its anchor.

    Attributes:
        indptr: int64 (N + 1,); the candidates of row i are those from ``indptr[i]`` on.
        indices: int32 (E,), rows, distinct within a list, never the row itself.
        scores: float32 (E,), similarities of the anchor to their positives, falling in each list.
        positive: float32 (N,), the similarity of each row's own pair.
        floors: float32 (N,), the lowest score of each list. Other rows have this score
            or less.
        fingerprint: ``b2:`` and 32 hex digits, of all of the above.
        ids: a pyarrow.Array of N integers or large_string, or None.
        shards: the file.
        origin: None; `Embeddings` can be read again by other processes.
    """

    indptr: Int64Array
    indices: NDArray[np.int32]
    scores: Float32Array
    positive: Float32Array
    floors: Float32Array
    fingerprint: str
    ids: pa.Array | None = field(default=None, repr=False)
    shards: tuple[Shard, ...] = ()
    origin: None = None
    shard_order: ClassVar[None] = None  # a single file

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.positive)

    @property
    def row_bytes(self) -> int:
        """Bytes in memory for each row, on average."""
        return 28 + 8 * len(self.indices) // max(1, self.num_rows)

    @classmethod
    @np.errstate(over="ignore")  # what float32 cannot hold is refused as infinite
    def from_lists(cls, ids: Any, scores: Any, positive: Any) -> Candidates:
        """Make candidates of lists in memory.

        Args:
            ids: N lists of row numbers, most similar first; or an (N, K) array. A row that is
                listed for itself is left out.
            scores: the similarities of the same rows, in the same shape.
            positive: (N,), the similarity of each row's own pair.

        Raises:
            InputError: lists of other lengths than their scores, empty lists, row numbers out of
                range or twice in a list, or scores that are no numbers or not falling.
        """
        ids = [np.asarray(one) if len(one) else np.empty(0, np.int64) for one in ids]
        scores = [np.asarray(one) for one in scores]
        own = np.asarray(positive, np.float32)
        if own.ndim != 1 or {len(ids), len(scores)} != {len(own)}:
            raise InputError(
                f"candidates: got {len(ids)} lists of ids, {len(scores)} lists of scores and "
                f"{own.size} positives, expected as many of each"
            )
        for row, (one, other) in enumerate(zip(ids, scores, strict=True)):
            if one.shape != other.shape or one.ndim != 1:
                raise InputError(
                    f"candidates of row {row}: got ids of shape {one.shape} and scores of "
                    f"shape {other.shape}, expected two lists of one length"
                )
        lengths = np.array([len(one) for one in ids], np.int64)
        names, values = (
            np.concatenate(lists) if lists else np.empty(0, np.int64) for lists in (ids, scores)
        )
        if names.dtype.kind not in "iu":
            raise InputError(f"candidates: got ids of {names.dtype}, expected row numbers")
        indptr = np.append(0, np.cumsum(lengths))
        return cls.of_arrays(indptr, names.astype(np.int64), values.astype(np.float32), own)

    @classmethod
    def of_arrays(
        cls,
        indptr: Int64Array,
        indices: NDArray[Any],
        scores: Float32Array,
        positive: Float32Array,
        place: Callable[[int], str] = "candidates of row {}".format,
        **more: Any,
    ) -> Candidates:
        """Make candidates of lists that follow one another; ``indptr[i]`` is the start of list i.

        Args:
            place: names a row in messages.
            more: ``ids`` and ``shards``.

        Raises:
            InputError: as `from_lists`.
        """
        n = len(positive)
        if n < 2:
            raise InputError(f"candidates: got {n} rows, expected at least 2, which a batch needs")
        mend = {
            "empty": "got an empty list, expected candidates; mine more, or drop the row",
            "range": f"got a row number outside 0 to {n - 1}; ids are row numbers, or values of "
            "the column id",
            "nan": "got a score that is NaN or infinite; recompute it",
            "order": "got scores that rise, expected the most similar candidate first; sort them",
            "twice": "got a candidate twice; list each once",
        }
        if not np.isfinite(positive).all():
            row = int(np.flatnonzero(~np.isfinite(positive))[0])
            raise InputError(f"{place(row)}: got a positive of {positive[row]}, expected a number")
        digest = blake2b(digest_size=16)
        digest.update(f"candidates {n}\n".encode())
        kept = np.ones(len(indices), np.bool_)
        floors = np.empty(n, np.float32)
        for start, stop in _blocks(indptr):  # which are part of the digest
            rows, ends = np.arange(start, stop), indptr[start : stop + 1]
            part, lengths = slice(int(ends[0]), int(ends[-1])), np.diff(ends)
            own, values = indices[part].astype(np.int64), np.ascontiguousarray(scores[part])
            owners = np.repeat(rows, lengths)
            pairs = np.sort(owners * n + own)
            for problem, wrong in (
                ("empty", rows[lengths == 0]),
                ("range", owners[(own < 0) | (own >= n)]),
                ("nan", owners[~np.isfinite(values)]),
                ("order", owners[1:][(values[1:] > values[:-1]) & (owners[1:] == owners[:-1])]),
                ("twice", pairs[1:][pairs[1:] == pairs[:-1]] // n),
            ):
                if len(wrong):
                    raise InputError(f"{place(int(wrong[0]))}: {mend[problem]}")
            kept[part] = own != owners
            floors[rows] = values[ends[1:] - ends[0] - 1]
            for held in (lengths, own, values, np.ascontiguousarray(positive[start:stop])):
                digest.update(held.data)
        if not kept.all():
            lengths = np.add.reduceat(kept, indptr[:-1], dtype=np.int64)
            indptr = np.append(0, np.cumsum(lengths))
            indices, scores = (_filtered(one, kept, int(indptr[-1])) for one in (indices, scores))
        return cls(
            indptr, indices.astype(np.int32, copy=False), np.ascontiguousarray(scores, np.float32),
            np.ascontiguousarray(positive, np.float32), floors, f"b2:{digest.hexdigest()}", **more,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Candidates:
        """Read a Parquet file with the columns ``ids`` (lists of integers), ``scores`` (lists of
        floats) and ``positive`` (floats).

        The ids are row numbers from 0; if the file has a column ``id``, they are values of that.

        Raises:
            InputError: the file cannot be read, a column is missing or of another type, an id is
                not in the column ``id``; or as `from_lists`.
        """
        from batchplan.data.candidate_files import read  # arrays need no Arrow

        file = located(path)
        lists, positive, ids = read(file)
        shard = Shard(str(file), "xy", len(positive), location=file)
        return cls.of_arrays(
            *lists, positive, lambda row: f"{file} row {row}", ids=ids, shards=(shard,)
        )

    def take(self, rows: Int64Array) -> Candidates:
        """Return the candidates of the given rows (n,) among these rows, numbered in the given
        order. The floors are taken from the whole lists."""
        place = np.full(self.num_rows, -1, np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        from batchplan.data.candidate_kernels import fill_among, lengths_among  # compiled

        indptr = lengths_among(self.indptr, self.indices, rows, place)
        size = int(indptr[-1])
        indices = _allocated(size, np.dtype(np.int32))
        scores = _allocated(size, np.dtype(np.float32))
        fill_among((self.indptr, self.indices, self.scores), rows, place, indices, scores)
        return Candidates(
            indptr, indices, scores, self.positive[rows], self.floors[rows], self.fingerprint
        )

    def require_similarities(self, similarity: str) -> None:
        """Do nothing, since scores are similarities; `Embeddings` checks its rows here."""


def _blocks(indptr: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of blocks of at most `_AT_ONCE` rows, and of about `_VALUES`
    candidates unless a row has more."""
    start, n = 0, len(indptr) - 1
    while start < n:
        most = int(np.searchsorted(indptr, indptr[start] + _VALUES, "right")) - 1
        stop = min(max(start + 1, most), start + _AT_ONCE, n)
        yield start, stop
        start = stop


def _filtered(values: NDArray[Any], kept: NDArray[np.bool_], count: int) -> NDArray[Any]:
    """Return the ``count`` values that are kept, in a temporary file if they are many."""
    out = _allocated(count, values.dtype)
    filled = 0
    for start in range(0, len(values), _VALUES):
        part = values[start : start + _VALUES][kept[start : start + _VALUES]]
        out[filled : filled + len(part)] = part
        filled += len(part)
    return out


def _allocated(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    large = 2 * count * dtype.itemsize > _HELD_BYTES
    return scratch_array((count,), dtype) if large else np.empty(count, dtype)


Data = Embeddings | Candidates


def data_of(x: Any, y: Any, negatives: Any) -> Data:
    """Return candidates as they are, or the embeddings of `Embeddings.of`.

    Raises:
        InputError: vectors next to candidates, or as `Embeddings.of`.
    """
    if not isinstance(x, Candidates):
        return Embeddings.of(x, y, negatives=negatives)
    if y is not None or negatives is not None:
        raise InputError("y: given with candidates, which need no vectors; leave it out")
    return x
