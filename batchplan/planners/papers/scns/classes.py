"""The class level of `scns`: draws from the most similar classes (section 3.1.1)."""

import numpy as np
import torch

from batchplan.data import Embeddings, load_embeddings
from batchplan.data.rows import load_rows
from batchplan.errors import InputError
from batchplan.guard.apart import Apart, apart
from batchplan.kernels import njit
from batchplan.planners.common.anchors import require_enough
from batchplan.planners.papers.scns.options import ScnsOptions
from batchplan.planners.papers.scns.rows import DRAWS
from batchplan.runtime import Runtime
from batchplan.typing import Float32Array, Float64Array, Int64Array

_ROWS_AT_ONCE, _BLOCK = 4096, 1 << 15
_TRIES = 32  # rejected draws from a class before its allowed rows are listed
_SPARE = 8  # further draws for batches, which skip negatives that they have already


def draw_from_classes(
    embeddings: Embeddings,
    options: ScnsOptions,
    runtime: Runtime,
    labels: Int64Array,
    separate: Apart,
) -> tuple[Int64Array, Float32Array]:
    """Draw distinct negatives of each row: first a similar class, then a random row of that class.

    If the row must not be a negative of the anchor, or was drawn before, another is drawn from the
    same class. If a class has no rows left, its probability goes to the other classes.

    Args:
        embeddings: N pairs of d dimensions.
        options: how many rows to draw, from how many classes, and the temperature.
        runtime: memory budget, seed, progress.
        labels: codes (N,) of classes.
        separate: which rows must not be negatives of each other.

    Returns:
        The rows (N, C) in the order of drawing, -1 if there are no more; and the probability of
        each in a single draw, before groups are left out.

    Raises:
        InputError: rows without a label, fewer than two classes, class embeddings of another
            number, a class vector of zeros under cosine, or a row with too few rows to draw from.
        ResourceError: the similarities of the classes do not fit the memory budget.
    """
    vectors = _vectors(embeddings, labels, options, runtime)
    neighbors, probabilities = _nearest(vectors, options)
    n, count = len(labels), options.per_row
    if options.as_batches:
        count += options.per_row + _SPARE
    generator = runtime.generator(DRAWS)
    members = np.argsort(labels, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(labels, minlength=len(neighbors))))
    rows, drawn = np.empty((n, count), np.int64), np.zeros((n, count), np.float32)
    with runtime.stage("draw", n) as advance:
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            _draw(
                start, labels, separate, neighbors, probabilities, members, starts, generator,
                rows[start:stop], drawn[start:stop],
            )  # fmt: skip
            advance(stop - start)
    require_enough((rows >= 0).sum(axis=1), options.per_row)
    return rows, drawn


def _vectors(
    embeddings: Embeddings, labels: Int64Array, options: ScnsOptions, runtime: Runtime
) -> Float64Array:
    """float64 (classes, d): the class embeddings, or the means of the (normalised) rows of both
    sides."""
    column = options.label_column
    if (bare := np.flatnonzero(labels < 0)).size:
        raise InputError(
            f"labels {column!r}: {bare.size} rows have none, first row {bare[0]}; "
            "--level class needs a label for every row: fill or drop these rows"
        )
    count = int(labels.max()) + 1
    if count < 2:
        raise InputError(f"labels {column!r}: got 1 class, expected at least 2")
    what = f"scns: the similarities of {count} classes"
    runtime.require_memory(24 * count * count, what, "use --level instance")
    if options.class_embeddings is not None:
        return _given(options.class_embeddings, count, options.similarity)
    embeddings.require_similarities(options.similarity)
    sums = np.zeros((count, embeddings.dim))
    sides = [embeddings.x, embeddings.y][: 1 + embeddings.paired]
    n, cpu, normalize = len(labels), torch.device("cpu"), options.similarity == "cosine"
    with runtime.stage("classes", n * len(sides)) as advance:
        for side in sides:
            for start in range(0, n, _ROWS_AT_ONCE):
                stop = min(start + _ROWS_AT_ONCE, n)
                rows = load_rows(side, start, stop, cpu, normalize).numpy()
                np.add.at(sums, labels[start:stop], rows)
                advance(stop - start)
    means: Float64Array = sums / (np.bincount(labels)[:, None] * len(sides))
    return means


def _given(path: str, count: int, similarity: str) -> Float64Array:
    """Read the class embeddings, float64 (classes, d)."""
    given = load_embeddings(path, negatives="none", single=True)
    if given.num_rows != count:
        raise InputError(
            f"class embeddings: got {given.num_rows} rows, expected {count}: one for each class in "
            "the order in which the labels first appear"
        )
    given.require_similarities(similarity)
    return given.x.rows(0, count).astype(np.float64)


def _nearest(vectors: Float64Array, options: ScnsOptions) -> tuple[Int64Array, Float64Array]:
    """The most similar other classes of each class, and the softmax of their similarities.

    Returns:
        int64 and float64 (classes, k), most similar first, of equal ones the lower code first.
    """
    if options.similarity == "cosine":
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        if (zero := np.flatnonzero(length == 0)).size:
            raise InputError(
                f"labels: the mean of class {zero[0]} is zero, for which cosine similarity is not "
                "defined; give --class-embeddings, or use --similarity dot"
            )
        vectors = vectors / length
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    k = min(options.top_k, len(vectors) - 1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    logits = np.take_along_axis(scores, order, axis=1) / options.scns_temperature
    share = np.exp(logits - logits[:, :1])
    return order, share / share.sum(axis=1, keepdims=True)


@njit
def _draw(  # type: ignore[no-untyped-def]
    first, labels, separate, neighbors, probabilities, members, starts, generator, rows, drawn
):
    for at in range(len(rows)):
        anchor = first + at
        near = neighbors[labels[anchor]]
        weights = probabilities[labels[anchor]].copy()
        filled = 0
        while filled < rows.shape[1]:
            pick = _pick(weights, generator)
            if pick < 0:
                break
            begin, end = starts[near[pick]], starts[near[pick] + 1]
            row = _row(anchor, separate, members[begin:end], rows[at, :filled], generator)
            if row < 0:
                weights[pick] = 0.0
                continue
            rows[at, filled] = row
            drawn[at, filled] = probabilities[labels[anchor], pick] / (end - begin)
            filled += 1
        rows[at, filled:] = -1


@njit
def _pick(weights, generator):  # type: ignore[no-untyped-def]
    """A place drawn by its weight; -1 if all weights are 0."""
    total = weights.sum()
    if total <= 0:
        return -1
    target, last = generator.random() * total, -1
    for place in range(len(weights)):
        if weights[place] > 0:
            last = place
            target -= weights[place]
            if target < 0:
                break
    return last


@njit
def _row(anchor, separate, members, before, generator):  # type: ignore[no-untyped-def]
    """A row of a class, drawn uniformly from the allowed rows; -1 if there is none."""
    for _ in range(_TRIES):
        row = members[int(generator.random() * len(members))]
        if _allowed(anchor, row, separate, before):
            return row
    left = [row for row in members if _allowed(anchor, row, separate, before)]
    return left[int(generator.random() * len(left))] if left else -1


@njit
def _allowed(anchor, row, separate, before):  # type: ignore[no-untyped-def]
    if apart(anchor, row, separate):
        return False
    for other in before:  # noqa: SIM110  (numba knows no generator expressions)
        if other == row:
            return False
    return True
