"""Mega-batches of similar rows: coarse clusters of exactly the sizes asked for.

k-means on a sample, in which clusters have *prices*, so that each attracts as many rows as it has
room for: those of optimal transport (Cuturi, "Sinkhorn Distances", NIPS 2013). Then all rows are
read once, and each goes to the centre that it likes best at these prices and that has room. Few
have to take another, as a sample foretells how many each cluster attracts.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import to_float32
from batchplan.kernels import njit
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order
from batchplan.typing import Float32Array, Int64Array

_SAMPLED, _OF_EACH = 16_384, 256  # rows of the sample, and at least so many for each cluster
_ITERATIONS, _BALANCINGS = 10, 30
_SOFTNESS = 0.1  # of choices while prices are sought, as a share of the spread of scores
_BLOCK = 4096  # rows


@full_float32()
def cluster_of_rows(
    embeddings: Embeddings,
    rows: Int64Array,
    room: Int64Array,
    kinds: Int64Array,
    similarity: str,
    generator: np.random.Generator,
    runtime: Runtime,
) -> Int64Array:
    """The cluster of each row: int64 (n,). N M d multiply-adds for M clusters of N rows.

    Args:
        embeddings: all rows.
        rows: int64 (n,), those to cluster, in rising order.
        room: int64 (K, M), how many of each kind go into each cluster; n in all.
        kinds: int64 (n,), of 0 to K - 1.
        similarity: ``cosine``, whose rows have unit length, or ``dot``.
        generator: draws the sample and the first centres.
        runtime: progress.
    """
    count = room.shape[1]
    size = min(len(rows), max(_SAMPLED, _OF_EACH * count))
    sample = rows[np.sort(generator.choice(len(rows), size, replace=False))]
    points = np.concatenate(list(_points(embeddings, sample, similarity)))
    centres = points[np.sort(generator.choice(size, count, replace=False))]
    shares = room.sum(axis=0) / room.sum()
    prices = np.zeros(count)
    with runtime.stage("similar", len(rows)) as advance:
        for _ in range(_ITERATIONS):
            scores = np.concatenate(list(_scores([points], centres)))
            prices = _balanced(scores, shares)
            chosen = np.argmax(scores - prices, axis=1)
            for cluster in np.unique(chosen):
                centres[cluster] = points[chosen == cluster].mean(axis=0, dtype=np.float64)
        prices = _balanced(np.concatenate(list(_scores([points], centres))), shares)
        labels, left, start = np.empty(len(rows), np.int64), room.copy(), 0
        for scores in _scores(_points(embeddings, rows, similarity), centres):
            stop = start + len(scores)
            _settle(scores - prices, kinds[start:stop], left, labels[start:stop])
            advance(stop - start)
            start = stop
    return labels


def _points(embeddings: Embeddings, rows: Int64Array, similarity: str) -> Iterator[Float32Array]:
    """float32 (block, d): the means of x and y, which under cosine are first scaled to unit
    length."""
    cpu = torch.device("cpu")
    sides = (embeddings.x, embeddings.y) if embeddings.paired else (embeddings.x,)
    for start in range(0, len(rows), _BLOCK):
        some = rows[start : start + _BLOCK]
        loaded = [
            to_float32(torch.from_numpy(side.take(some)), cpu, similarity == "cosine")
            for side in sides
        ]
        yield torch.stack(loaded).mean(dim=0).numpy()


def _scores(blocks: Iterable[Float32Array], centres: Float32Array) -> Iterator[NDArray[np.float64]]:
    """float64 (block, M) of each block of points: the larger, the nearer a centre is."""
    keys = torch.from_numpy(centres)
    half = 0.5 * (keys.double() ** 2).sum(1)

    def work(block: Float32Array) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = (torch.from_numpy(block) @ keys.T).double().sub_(half).numpy()
        return scores

    parts = (
        part for block in blocks for part in np.split(block, range(_BLOCK, len(block), _BLOCK))
    )
    return in_order(work, parts)


def _balanced(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 (M,): prices at which each cluster attracts its share of the rows."""
    softness = _SOFTNESS * max(float(scores.std()), 1e-30)
    prices = np.zeros(len(shares))
    for _ in range(_BALANCINGS):
        likes = (scores - prices) / softness
        likes = np.exp(likes - likes.max(axis=1, keepdims=True))
        attracted = (likes / likes.sum(axis=1, keepdims=True)).mean(axis=0)
        prices += softness * np.log(np.maximum(attracted, 1e-9) / shares)
    return prices


@njit
def _settle(scores, kinds, left, labels):  # type: ignore[no-untyped-def]
    """Each row in turn goes where its score is best among the clusters with room for its kind."""
    for i in range(len(scores)):
        free = left[kinds[i]]
        chosen = -1
        for cluster in range(free.size):
            if free[cluster] > 0 and (chosen < 0 or scores[i, cluster] > scores[i, chosen]):
                chosen = cluster
        labels[i] = chosen
        free[chosen] -= 1
