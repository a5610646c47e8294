"""`describe`: the similarities of embeddings, and the rows that guards would exclude."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data.answer_options import AnswerOptions
from batchplan.data.answers import answers_of
from batchplan.data.duplicates import repeated_codes
from batchplan.data.embeddings import Embeddings
from batchplan.data.matrix import RowMatrix
from batchplan.errors import InputError
from batchplan.guard.ceilings import ceilings_of, usual_positive, usual_rows
from batchplan.runtime import Runtime
from batchplan.typing import Float32Array, Float64Array, Int64Array

Limit = dict[str, float]  # an option of a guard, and its value
RELATIVE_MARGINS = (0.3, 0.2, 0.15, 0.1, 0.05, 0.0)
ABSOLUTE_MARGINS = (0.0, 0.05, 0.1)
SCORE_PERCENTS = (25, 50, 75)  # of the similarities of the positives

_ROWS_AT_ONCE = 4096
_NEGATIVES = 1 << 20  # number of random negatives, roughly
_HELD_BYTES = 1 << 26  # y of up to 64 MB is read once, not for each distance again
_TILE = 256  # rows that stay in the cache while they are compared at all distances
_PERCENTS = (1, 5, 25, 50, 75, 95, 99)
_SAMPLED, _FEWEST = 1024, 64  # rows to compare with all rows, at most and at least
_PAIRS = 1 << 27  # similarities of a sample, so that a sample of large data is smaller
_ROUNDING = 2e-6  # of the lengths of two rows: equal positives have similarities this close
_COLUMNS = 1024  # of a tile, which with 1024 rows takes 4 MB and stays in the cache


@dataclass(frozen=True, kw_only=True)
class GuardEffect:
    """The effect of a guard with one limit.

    Attributes:
        relative_margin, absolute_margin, max_score: the limit, as `evaluate` takes it.
        kept_away: mean number of rows that are excluded from the batch of a row.
        rows_affected: share of the rows with any excluded row.
    """

    relative_margin: float | None = None
    absolute_margin: float | None = None
    max_score: float | None = None
    kept_away: float
    rows_affected: float


@dataclass(frozen=True, kw_only=True)
class Description:
    """Facts about embeddings.

    Attributes:
        num_rows, dim: N and d.
        paired: whether y is another matrix than x.
        dtypes: of x and y.
        fingerprint: identifies the data; a plan stores it.
        ids: type of the id column, None without one.
        shards: side, rows and path of each shard.
        length_x, length_y: smallest, mean and largest Euclidean length of the rows.
        positive_similarity: percentiles of x_i . y_i over all rows.
        random_negative_similarity: percentiles of x_i . y_j, i != j, over a sample of about 10^6.
        beaten_positives: share of the sampled negatives more similar than their row's positive.
        duplicates: by ``x`` and ``y``, the rows that equal another row of that side.
        several_answers: rows whose anchor has more than one known answer.
        hardest_to_positive: percentiles of max_j max(x_i . y_j, y_i . x_j) / x_i . y_i, j != i,
            over up to 1,024 sampled rows i whose positive is above 0; empty without such rows.
        guards: what guards would exclude from the batches of the sampled rows: with
            `RELATIVE_MARGINS`, with `ABSOLUTE_MARGINS`, and with maximum scores at
            `SCORE_PERCENTS` of the positives, rounded to two digits. All exclude equal rows. With
            mined negatives, the similarity of two rows is the largest of an anchor of one and any
            document of the other.
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
    several_answers: int
    hardest_to_positive: dict[str, float]
    guards: list[GuardEffect]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, in this order."""
        return asdict(self)


def describe(
    embeddings: Embeddings,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    limits: Sequence[Limit] | None = None,
    answers: AnswerOptions | None = None,
) -> Description:
    """Describe embeddings in streaming passes and two samples.

    Random negatives pair every row with rows at random distances after it. The hardest negatives of
    sampled rows are searched among all rows.

    Args:
        embeddings: N pairs.
        runtime: seed of the samples, and progress.
        similarity: ``cosine`` or ``dot``.
        limits: of the guards to try; None for those that `Description` lists.
        answers: ids, by which rows are equal too, and a list of known answers; None for neither.

    Raises:
        InputError: an unknown similarity, or as `Embeddings.require_similarities` and
            `answers_of`.
    """
    if similarity not in ("cosine", "dot"):
        raise InputError(f"similarity: got {similarity!r}, expected cosine or dot")
    embeddings.require_similarities(similarity)
    n, x, y = embeddings.num_rows, embeddings.x, embeddings.y
    generator = runtime.generator()
    distances = generator.choice(n - 1, min(n - 1, -(-_NEGATIVES // n)), replace=False) + 1
    lengths, positive, negatives = _similarities(embeddings, similarity, distances, runtime)
    sample = sampled_rows(generator, n)
    with runtime.stage("duplicates", n * (1 + embeddings.paired)) as advance:
        known = answers_of(embeddings, answers, advance=advance)
        sides = {"x": known.anchors, "y": known.documents[0]}
        codes = {name: repeated_codes(side) for name, side in sides.items()}
    with runtime.stage("guards", n) as advance:
        apart = list(codes.values())
        if limits is None:
            limits = _limits(positive)
        guards, hardest = _guard_effects(
            embeddings, similarity, positive, apart, sample, limits, advance
        )
    rounding = _ROUNDING * (1.0 if similarity == "cosine" else lengths.prod(axis=0))
    above = positive[sample] > 0  # other ratios have no meaning
    ratios = hardest[above] / positive[sample][above]
    return Description(
        num_rows=n,
        dim=embeddings.dim,
        paired=embeddings.paired,
        dtypes={"x": str(x.dtype), "y": str(y.dtype)},
        fingerprint=embeddings.fingerprint,
        ids=None if embeddings.ids is None else str(embeddings.ids.type),
        shards=[f"{shard.side}  {shard.rows:,} rows  {shard.path}" for shard in embeddings.shards],
        length_x=_range(lengths[0]),
        length_y=_range(lengths[1]),
        positive_similarity=_percentiles(positive),
        random_negative_similarity=_percentiles(negatives),
        beaten_positives=float((negatives > (positive + rounding)[:, None]).mean()),
        duplicates={side: int((equal >= 0).sum()) for side, equal in codes.items()},
        several_answers=int((known.counts > 1).sum()),
        hardest_to_positive=_percentiles(ratios) if len(ratios) else {},
        guards=guards,
    )


def _similarities(
    embeddings: Embeddings, similarity: str, distances: Int64Array, runtime: Runtime
) -> tuple[Float64Array, Float64Array, Float32Array]:
    """Return lengths of x and y (2, N), x_i . y_i (N,), and x_i . y_j for j = i + each distance
    (N, D)."""
    n, x, y = embeddings.num_rows, embeddings.x, embeddings.y
    lengths, positive = np.empty((2, n)), np.empty(n)
    negatives = np.empty((n, distances.size), np.float32)
    held, tile = None, _ROWS_AT_ONCE
    if 4 * y.shape[1] * n <= _HELD_BYTES:
        held, tile = _rows(y, np.arange(n + _TILE) % n, similarity)[0], _TILE
    with runtime.stage("inspect", n) as advance:
        for start in range(0, n, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, n)
            here = np.arange(start, stop)
            a, lengths[0, start:stop] = _rows(x, here, similarity)
            b, lengths[1, start:stop] = _rows(y, here, similarity)
            positive[start:stop] = np.einsum("nd,nd->n", a, b)
            for first in range(start, stop, tile):
                part = a[first - start : first - start + tile]
                out = negatives[first : first + len(part)]
                for k, distance in enumerate(distances):
                    at = (first + distance) % n
                    if held is None:
                        ahead = np.arange(at, at + len(part)) % n
                        others = _rows(y, ahead, similarity)[0]
                    else:
                        others = held[at : at + len(part)]
                    out[:, k] = (part[:, None] @ others[:, :, None])[:, 0, 0]
            advance(stop - start)
    return lengths, positive, negatives


def sampled_rows(generator: np.random.Generator, num_rows: int) -> Int64Array:
    """Return the rows that are compared with all rows, in rising order: up to 1,024, fewer if the
    data are large."""
    count = min(num_rows, _SAMPLED, max(_FEWEST, _PAIRS // num_rows))
    return np.sort(generator.choice(num_rows, count, replace=False))


def _limits(positive: Float64Array) -> list[Limit]:
    """Return the limits of the guards that a `Description` lists, for positives (N,)."""
    scores = [float(f"{score:.2g}") for score in np.percentile(positive, SCORE_PERCENTS)]
    return [
        *({"relative_margin": margin} for margin in RELATIVE_MARGINS),
        *({"absolute_margin": margin} for margin in ABSOLUTE_MARGINS),
        *({"max_score": score} for score in scores),
    ]


def _guard_effects(
    embeddings: Embeddings,
    similarity: str,
    positive: Float64Array,
    codes: list[Int64Array],
    sample: Int64Array,
    limits: Sequence[Limit],
    advance: Callable[[int], None],
) -> tuple[list[GuardEffect], Float32Array]:
    """Compare sampled rows with all N rows, in float32.

    Args:
        embeddings: N pairs.
        similarity: ``cosine`` or ``dot``.
        positive: (N,), x_i . y_i.
        codes: int64 (N,) for each side: the same code for equal rows, -1 for rows without an equal.
        sample: int64 (S,), rows.
        limits: of each guard.
        advance: called with the number of rows done.

    Returns:
        The effect of each guard; and for each sampled row i, the largest max(s_ij, s_ji) with
        j != i, (S,).
    """
    documents = [embeddings.y, *embeddings.negatives]
    own = [_rows(side, sample, similarity)[0] for side in (embeddings.x, *documents)]
    near = np.maximum(positive, usual_positive(positive[usual_rows(len(positive))]))
    of_sample = [ceilings_of(near[sample], **limit)[:, None] for limit in limits]
    excluded = np.zeros((len(limits), len(sample)), np.int64)
    hardest = np.full(len(sample), -np.inf, np.float32)
    for start in range(0, len(near), _COLUMNS):
        columns = np.arange(start, min(start + _COLUMNS, len(near)))
        anchors = _rows(embeddings.x, columns, similarity)[0]
        products = []
        for matrix, theirs in zip(documents, own[1:], strict=True):
            keys = anchors if matrix is embeddings.x else _rows(matrix, columns, similarity)[0]
            products.append(own[0] @ keys.T)
            if matrix is not embeddings.x:  # else s_ij = s_ji
                products.append(theirs @ anchors.T)
        highest = reduce(np.maximum, products)
        here = np.flatnonzero((sample >= start) & (sample <= columns[-1]))
        themselves = here, sample[here] - start
        highest[themselves] = -np.inf
        np.maximum(hardest, highest.max(axis=1), out=hardest)
        for side in codes:
            repeated = np.flatnonzero(side[columns] >= 0)
            places, other = np.nonzero(side[sample, None] == side[columns[repeated]])
            highest[places, repeated[other]] = np.inf
        highest[themselves] = -np.inf
        for row, limit in enumerate(limits):
            ceilings = np.minimum(of_sample[row], ceilings_of(near[columns], **limit))
            excluded[row] += np.count_nonzero(highest >= ceilings, axis=1)
        advance(len(columns))
    effects = [
        GuardEffect(**limit, kept_away=float(row.mean()), rows_affected=float((row > 0).mean()))
        for limit, row in zip(limits, excluded, strict=True)
    ]
    return effects, hardest


def _rows(
    matrix: RowMatrix, indices: Int64Array, similarity: str
) -> tuple[Float32Array, Float64Array]:
    """float32 rows, of unit length under cosine, and their lengths as stored."""
    rows = matrix.take(indices).astype(np.float32)
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))  # squares may overflow
    if similarity == "cosine":
        rows /= length[:, None].astype(np.float32)
    return rows, length


def _range(values: NDArray[Any]) -> dict[str, float]:
    parts = {"min": values.min(), "mean": values.mean(), "max": values.max()}
    return {name: float(value) for name, value in parts.items()}


def _percentiles(values: NDArray[Any]) -> dict[str, float]:
    return {
        str(p): float(v) for p, v in zip(_PERCENTS, np.percentile(values, _PERCENTS), strict=True)
    }
