"""What a data set looks like before anything is planned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchplan.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchplan.data import Embeddings, RowMatrix
    from batchplan.runtime import Runtime

_ROWS_AT_ONCE = 4096
_NEGATIVES = 1 << 20
_PERCENTS = (1, 5, 25, 50, 75, 95, 99)


@dataclass(frozen=True, kw_only=True)
class Description:
    """Facts about embeddings.

    Attributes:
        num_rows, dim: N and d.
        paired: whether y is a matrix of its own.
        dtypes: of x and y.
        fingerprint: what a plan remembers of the data.
        ids: type of the id column, None without one.
        shards: side, rows and path of each shard.
        length_x, length_y: smallest, mean and largest Euclidean length of the rows.
        positive_similarity: percentiles of x_i . y_i over all rows.
        random_negative_similarity: percentiles of x_i . y_j, i != j, over a sample of about 10^6.
        beaten_positives: share of the sampled negatives more similar than their row's positive.
    """

    num_rows: int
    dim: int
    paired: bool
    dtypes: dict[str, str]
    fingerprint: str
    ids: str | None
    shards: list[str]
    length_x: dict[str, float]
    length_y: dict[str, float]
    positive_similarity: dict[str, float]
    random_negative_similarity: dict[str, float]
    beaten_positives: float

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values, in this order."""
        return asdict(self)


def describe(
    embeddings: Embeddings, runtime: Runtime, *, similarity: str = "cosine"
) -> Description:
    """Describe embeddings in one streaming pass and a sample.

    Negatives are sampled by pairing every row with the row a random distance ahead of it.

    Args:
        embeddings: N pairs.
        runtime: seed of the sample, progress.
        similarity: ``cosine`` or ``dot``.

    Raises:
        InputError: an unknown similarity, or a zero row under cosine.
    """
    if similarity not in ("cosine", "dot"):
        raise InputError(f"similarity: got {similarity!r}, expected cosine or dot")
    if similarity == "cosine":
        embeddings.require_nonzero_rows()
    n, x, y = embeddings.num_rows, embeddings.x, embeddings.y
    generator = runtime.generator()
    distances = generator.choice(n - 1, min(n - 1, -(-_NEGATIVES // n)), replace=False) + 1
    length_x, length_y, positive = np.empty((3, n))
    negatives = np.empty((n, distances.size), np.float32)
    with runtime.stage("inspect", n) as advance:
        for start in range(0, n, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, n)
            here = np.arange(start, stop)
            a, length_x[start:stop] = _rows(x, here, similarity)
            b, length_y[start:stop] = _rows(y, here, similarity)
            positive[start:stop] = np.einsum("nd,nd->n", a, b)
            for k, distance in enumerate(distances):
                b, _ = _rows(y, (here + distance) % n, similarity)
                negatives[start:stop, k] = np.einsum("nd,nd->n", a, b)
            advance(stop - start)
    if not np.isfinite(positive).all() or not np.isfinite(negatives).all():
        raise InputError(
            f"dot similarity: got rows of length up to {max(length_x.max(), length_y.max()):.1e}, "
            "whose products float32 cannot hold; scale the embeddings down or use cosine"
        )
    return Description(
        num_rows=n,
        dim=embeddings.dim,
        paired=embeddings.paired,
        dtypes={"x": str(x.dtype), "y": str(y.dtype)},
        fingerprint=embeddings.fingerprint,
        ids=None if embeddings.ids is None else str(embeddings.ids.type),
        shards=[f"{one.side}  {one.rows:,} rows  {one.path}" for one in embeddings.shards],
        length_x=_range(length_x),
        length_y=_range(length_y),
        positive_similarity=_percentiles(positive),
        random_negative_similarity=_percentiles(negatives),
        beaten_positives=float((negatives > positive[:, None]).mean()),
    )


def _rows(
    matrix: RowMatrix, indices: NDArray[np.int64], similarity: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rows = matrix.take(indices).astype(np.float32)
    length = np.linalg.norm(rows, axis=1)
    return (rows / length[:, None] if similarity == "cosine" else rows), length


def _range(values: NDArray[Any]) -> dict[str, float]:
    parts = {"min": values.min(), "mean": values.mean(), "max": values.max()}
    return {name: float(value) for name, value in parts.items()}


def _percentiles(values: NDArray[Any]) -> dict[str, float]:
    return {
        str(p): float(v) for p, v in zip(_PERCENTS, np.percentile(values, _PERCENTS), strict=True)
    }
