"""`Embeddings`: the paired vectors that planners work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from batchplan.data.matrix import RowMatrix, Shard, Side
from batchplan.data.memory import negative_sides, side_of
from batchplan.data.origin import Origin
from batchplan.data.shards import order_of
from batchplan.data.validate import Content, check_content, long_rows
from batchplan.errors import InputError
from batchplan.files.saved_data import embedded_order
from batchplan.options import ShardOrder
from batchplan.typing import BoolArray, Int64Array

if TYPE_CHECKING:  # data without ids need no Arrow
    import pyarrow as pa

# Under dot, products of rows and squared lengths stay below 1e37, so that sums of a few are finite;
# under cosine only the lengths must be finite.
_LONGEST = {"dot": 3e18, "cosine": 3e38}


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors of N rows: pairs, or tuples with mined negatives. All values are finite.

    Row i of x, the *anchor*, and row i of y are a positive pair. The *documents* of row i are its
    positive and its k mined negatives; in a batch, each anchor meets the documents of all rows.

    Attributes:
        x: N x d, float16 or float32.
        y: N x d, float16 or float32; the same object as x if there is only one matrix.
        negatives: k matrices, N x d each; none for pairs. A row with fewer negatives has its own
            positive in place of each missing one.
        missing: bool (k, N), which negatives are missing; None if all rows have k.
        ids: a pyarrow.Array of N integers or large_string, or None; ``ids.take(rows)`` gathers.
        shards: the input files in order; files of x come first, unless they have both sides.
        fingerprint: ``b2:`` and 32 hex digits. It depends on the rows, their order, dtype and
            pairing; not on shards, file format, threads or ids.
        origin: how another process can read them from the same files; None for arrays in memory.
    """

    x: RowMatrix
    y: RowMatrix
    negatives: tuple[RowMatrix, ...]
    missing: BoolArray | None = field(repr=False)
    ids: pa.Array | None = field(repr=False)
    shards: tuple[Shard, ...]
    fingerprint: str
    _sides: tuple[Side, ...] = field(repr=False)
    _content: Mapping[str, Content] = field(repr=False)
    origin: Origin | None = field(default=None, repr=False)

    @property
    def num_rows(self) -> int:
        """N."""
        return self.x.shape[0]

    @property
    def dim(self) -> int:
        """d."""
        return self.x.shape[1]

    @property
    def paired(self) -> bool:
        """Whether there are two sides; False if y is x."""
        return self.y is not self.x

    @property
    def shard_order(self) -> ShardOrder | None:
        """The order of files in folders or globs, or of the texts that `embed` read; None if it
        makes no difference."""
        if self.origin is None:
            return None
        files, order = self.origin.files, self.origin.shard_order
        return order_of(files, order) or embedded_order(files[0].parent)

    @property
    def matrices(self) -> tuple[RowMatrix, ...]:
        """Each different matrix once: x, y if there are two sides, and the negatives."""
        return (self.x, *([self.y] if self.paired else []), *self.negatives)

    def by_document(self) -> list[Embeddings]:
        """1 + k embeddings of pairs: the anchors with the positives, then with each negative."""
        pairs = replace(self, negatives=(), missing=None)
        return [pairs, *(replace(pairs, y=matrix) for matrix in self.negatives)]

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any = None, *, negatives: Any = None, ids: Any = None
    ) -> Embeddings:
        """Make embeddings of arrays in memory, with the same checks as files.

        Args:
            x: (N, d) float16, bfloat16, float32 or int8: an array; a torch tensor on any device; a
                column of lists of one length of pyarrow, polars, pandas or `datasets`; or anything
                else that np.asarray takes. C-ordered native numbers in main memory are not copied,
                so do not change them afterwards. float64 is rounded to float32.
            y: the other side, of the same shape; None if there is only one matrix.
            negatives: mined negatives of each row: an (N, k, d) array, k values as ``x``, or N
                arrays (k_i, d) if rows have different numbers of them. A row of zeros is a missing
                negative.
            ids: N different integers or strings.

        Raises:
            InputError: another shape, dtype or number of rows; ragged or null rows; NaN or Inf;
                null or duplicate ids.
        """
        sides = [side_of("x", x)]
        if y is not None:
            sides.append(side_of("y", y))
        if negatives is not None:
            sides += negative_sides(negatives, *sides[0].matrix.shape)
        check_shapes([(side.name, *side.matrix.shape) for side in sides])
        if ids is not None:
            from batchplan.data.ids import ids_from

            ids = ids_from(ids, len(sides[0].matrix))
        return cls.from_sides(sides, ids, lambda _rows: None)

    @classmethod
    def of(cls, x: Any, y: Any = None, *, negatives: Any = None) -> Embeddings:
        """Return the embeddings ``x``, or embeddings of arrays; arguments and errors as
        `from_arrays`."""
        if not isinstance(x, cls):
            return cls.from_arrays(x, y, negatives=negatives)
        for name, value in (("y", y), ("negatives", negatives)):
            if value is not None:
                raise InputError(
                    f"{name}: got {type(value).__name__} with embeddings, which have all "
                    "matrices; leave it out, or give arrays"
                )
        return x

    @classmethod
    def from_sides(
        cls, sides: Sequence[Side], ids: pa.Array | None, advance: Callable[[int], None]
    ) -> Embeddings:
        """Make embeddings of checked sides.

        Args:
            sides: x, then y if there are two, then the negatives, all of equal shape.
            ids: (N,), or None.
            advance: called with the number of rows that were checked.

        Raises:
            InputError: a value is NaN or infinite.
        """
        fingerprint, content = check_content(sides, advance)
        shards = dict.fromkeys(side.shards for side in sides)
        pairs = [side.matrix for side in sides if side.name in ("x", "y")]
        mined = [side.matrix for side in sides[len(pairs) :]]
        zeros = [content[side.name].zeros for side in sides[len(pairs) :]]
        missing = np.zeros((len(mined), len(pairs[0])), np.bool_) if any(map(len, zeros)) else None
        if missing is not None:
            for number, rows in enumerate(zeros):
                missing[number, rows] = True
                mined[number] = mined[number].filled(rows, pairs[-1])
        return cls(
            pairs[0], pairs[-1], tuple(mined), missing, ids,
            tuple(shard for of_side in shards for shard in of_side),
            fingerprint, tuple(sides), content,
        )  # fmt: skip

    def take(self, rows: Int64Array) -> Embeddings:
        """Return a copy in memory of the given rows (n,), in the given order. Error messages no
        longer name the files of the rows."""
        return Embeddings.gathered(self._sides, rows)

    @classmethod
    def gathered(cls, sides: Sequence[Side], rows: Int64Array) -> Embeddings:
        """Return the given rows (n,) of the sides that `from_sides` takes, as `take` returns
        them."""
        taken = [side_of(side.name, side.matrix.take(rows)) for side in sides]
        return cls.from_sides(taken, None, lambda _rows: None)

    @classmethod
    def alike(cls, num_rows: int) -> Embeddings:
        """Return N rows of which only ids are known: one matrix of equal rows."""
        return cls.from_arrays(np.ones((num_rows, 1), np.float16))

    def require_similarities(self, similarity: str) -> None:
        """Refuse rows whose similarities are undefined or overflow float32.

        Call this before you compute similarities: then products of rows and squares of their
        lengths are finite.

        Args:
            similarity: ``cosine`` or ``dot``.

        Raises:
            InputError: rows of zeros under cosine, or rows too long; names the side, their number
                and the first of them.
        """
        for side in self._sides:
            (zeros, largest), limit = self._content[side.name], _LONGEST[similarity]
            if len(zeros) and similarity == "cosine" and side.name in ("x", "y"):
                raise InputError(
                    f"{side.name}: got {len(zeros)} rows of zeros ({side.places(zeros)}), for "
                    "which cosine similarity is not defined; recompute or drop these rows"
                )
            if largest * sqrt(self.dim) <= limit:
                continue
            long, longest = long_rows(side.matrix, limit)
            if len(long):
                mend = " or use cosine similarity" * (similarity == "dot")
                raise InputError(
                    f"{side.name}: got {len(long)} rows of length up to {longest:.1e} "
                    f"({side.places(long)}), expected at most {limit:.0e} for {similarity} "
                    f"similarity, or float32 (largest 3.4e+38) overflows; scale the vectors "
                    f"down{mend}"
                )


def check_shapes(sides: Sequence[tuple[str, int, int]]) -> None:
    """Refuse fewer than two rows, or sides of different shape; each is (name, rows, dimensions).

    Raises:
        InputError: names the sides and their shapes.
    """
    name, rows, dim = sides[0]
    for other, other_rows, other_dim in sides[1:]:
        if other_rows != rows:
            raise InputError(
                f"{name} and {other}: got {rows} and {other_rows} rows, expected the same, because "
                "row i of one belongs to row i of the other; check for missing shards"
            )
        if other_dim != dim:
            raise InputError(
                f"{name} and {other}: got {dim} and {other_dim} dimensions, expected the same; "
                "embed both sides into one space"
            )
    if rows < 2:
        raise InputError(f"{name}: got {rows} rows, expected at least 2, which a batch needs")
