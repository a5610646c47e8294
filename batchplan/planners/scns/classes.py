"""The classes of `scns`: their vectors, and the most similar classes of each."""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import load_rows
from batchplan.errors import InputError
from batchplan.runtime import Runtime

_BLOCK = 4096


def class_vectors(
    embeddings: Embeddings,
    labels: NDArray[np.int64],
    runtime: Runtime,
    *,
    column: str | None,
    similarity: str,
) -> NDArray[np.float64]:
    """float64 (classes, d): the mean of the (normalised) rows of both sides of each class.

    Args:
        embeddings: N pairs of d dimensions.
        labels: int64 (N,) codes of classes, from 0; -1 for none.
        runtime: memory budget, progress.
        column: the name of the labels, for messages.
        similarity: ``cosine`` or ``dot``.

    Raises:
        InputError: rows without a label, or fewer than two classes.
        ResourceError: the similarities of the classes do not fit the memory budget.
    """
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
    embeddings.require_similarities(similarity)
    sums = np.zeros((count, embeddings.dim))
    sides = [embeddings.x, embeddings.y] if embeddings.paired else [embeddings.x]
    cpu = torch.device("cpu")
    n = embeddings.num_rows
    with runtime.stage("classes", n * len(sides)) as advance:
        for side in sides:
            for start in range(0, n, _BLOCK):
                stop = min(start + _BLOCK, n)
                rows = load_rows(side, start, stop, cpu, similarity == "cosine").numpy()
                np.add.at(sums, labels[start:stop], rows)
                advance(stop - start)
    means: NDArray[np.float64] = sums / (np.bincount(labels)[:, None] * len(sides))
    return means


def nearest_classes(
    vectors: NDArray[np.float64], k: int, temperature: float, similarity: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k most similar other classes of each class, and the softmax of their similarities.

    Args:
        vectors: float64 (classes, d).
        k: at most the number of other classes is used.
        temperature: of the softmax.
        similarity: ``cosine`` or ``dot``.

    Returns:
        int64 and float64 (classes, k), most similar first, ties by code.

    Raises:
        InputError: the mean of a class is zero, so that its cosine is undefined.
    """
    if similarity == "cosine":
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        if (zero := np.flatnonzero(length == 0)).size:
            raise InputError(
                f"labels: the mean of class {zero[0]} is zero, for which cosine similarity is not "
                "defined; give class embeddings, or use --similarity dot"
            )
        vectors = vectors / length
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : min(k, len(vectors) - 1)]
    logits = np.take_along_axis(scores, order, axis=1) / temperature
    share = np.exp(logits - logits[:, :1])
    return order, share / share.sum(axis=1, keepdims=True)
