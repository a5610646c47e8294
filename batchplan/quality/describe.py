"""What a data set looks like before anything is planned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchplan.data.duplicates import duplicate_codes
from batchplan.errors import InputError
from batchplan.quality.guard_effects import GuardEffect, guard_effects, measured_rows, sampled_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchplan.data import Embeddings
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
        duplicates: by ``x`` and ``y``, the rows of that side that equal another one of it.
        hardest_to_positive: percentiles of max_j max(x_i . y_j, y_i . x_j) / x_i . y_i, j != i,
            over up to 1,024 sampled rows i of a positive above 0; empty if there are none.
        guards: what guards against false negatives would keep away from such a sample; pairs of
            equal rows count as kept away by any.
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
    duplicates: dict[str, int]
    hardest_to_positive: dict[str, float]
    guards: list[GuardEffect]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values, in this order."""
        return asdict(self)


def describe(
    embeddings: Embeddings, runtime: Runtime, *, similarity: str = "cosine"
) -> Description:
    """Describe embeddings in streaming passes and two samples.

    Random negatives are made by pairing every row with the row a random distance ahead of it; the
    hardest ones are sought among all rows, for a sample of rows.

    Args:
        embeddings: N pairs.
        runtime: seed of the sample, progress.
        similarity: ``cosine`` or ``dot``.

    Raises:
        InputError: an unknown similarity, or as `Embeddings.require_similarities`.
    """
    if similarity not in ("cosine", "dot"):
        raise InputError(f"similarity: got {similarity!r}, expected cosine or dot")
    embeddings.require_similarities(similarity)
    n, x, y = embeddings.num_rows, embeddings.x, embeddings.y
    generator = runtime.generator()
    distances = generator.choice(n - 1, min(n - 1, -(-_NEGATIVES // n)), replace=False) + 1
    lengths, positive, negatives = _similarities(embeddings, similarity, distances, runtime)
    sample = sampled_rows(generator, n)
    codes = _duplicates(embeddings, runtime)
    with runtime.stage("guards", n) as advance:
        apart = list(codes.values())
        guards, hardest = guard_effects(embeddings, similarity, positive, apart, sample, advance)
    embeddings.require_unchanged()
    return Description(
        num_rows=n,
        dim=embeddings.dim,
        paired=embeddings.paired,
        dtypes={"x": str(x.dtype), "y": str(y.dtype)},
        fingerprint=embeddings.fingerprint,
        ids=None if embeddings.ids is None else str(embeddings.ids.type),
        shards=[f"{one.side}  {one.rows:,} rows  {one.path}" for one in embeddings.shards],
        length_x=_range(lengths[0]),
        length_y=_range(lengths[1]),
        positive_similarity=_percentiles(positive),
        random_negative_similarity=_percentiles(negatives),
        beaten_positives=float((negatives > positive[:, None]).mean()),
        duplicates={side: int((found >= 0).sum()) for side, found in codes.items()},
        hardest_to_positive=_ratios(hardest, positive[sample]),
        guards=guards,
    )


def _similarities(
    embeddings: Embeddings, similarity: str, distances: NDArray[np.int64], runtime: Runtime
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32]]:
    """Lengths of x and y (2, N), x_i . y_i (N,), and x_i . y_j with j so far ahead of i (N, D)."""
    n, x, y = embeddings.num_rows, embeddings.x, embeddings.y
    lengths, positive = np.empty((2, n)), np.empty(n)
    negatives = np.empty((n, distances.size), np.float32)
    with runtime.stage("inspect", n) as advance:
        for start in range(0, n, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, n)
            here = np.arange(start, stop)
            a, lengths[0, start:stop] = measured_rows(x, here, similarity)
            b, lengths[1, start:stop] = measured_rows(y, here, similarity)
            positive[start:stop] = np.einsum("nd,nd->n", a, b)
            for k, distance in enumerate(distances):
                b, _ = measured_rows(y, (here + distance) % n, similarity)
                negatives[start:stop, k] = np.einsum("nd,nd->n", a, b)
            advance(stop - start)
    return lengths, positive, negatives


def _duplicates(embeddings: Embeddings, runtime: Runtime) -> dict[str, NDArray[np.int64]]:
    """`duplicate_codes` of both sides."""
    with runtime.stage("duplicates", (1 + embeddings.paired) * embeddings.num_rows) as advance:
        x = duplicate_codes(embeddings.x, advance)
        return {"x": x, "y": duplicate_codes(embeddings.y, advance) if embeddings.paired else x}


def _ratios(hardest: NDArray[np.float32], positive: NDArray[np.float64]) -> dict[str, float]:
    above = positive > 0  # a share of anything else says nothing
    return _percentiles(hardest[above] / positive[above]) if above.any() else {}


def _range(values: NDArray[Any]) -> dict[str, float]:
    parts = {"min": values.min(), "mean": values.mean(), "max": values.max()}
    return {name: float(value) for name, value in parts.items()}


def _percentiles(values: NDArray[Any]) -> dict[str, float]:
    return {
        str(p): float(v) for p, v in zip(_PERCENTS, np.percentile(values, _PERCENTS), strict=True)
    }
