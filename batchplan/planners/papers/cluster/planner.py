"""Batches that are clusters of k-means with N / B centres, balanced to exact batch sizes.

A baseline: the batch of a row depends on its region of space, not on its neighbours. The points are
the means of the two (normalised) sides of each pair. Products are float32 in blocks of one thread
each, and sums are float64 in row order, so that the result does not depend on the number of
threads.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import load_rows
from batchplan.files.reading import changed_error
from batchplan.kernels import njit
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.cluster.options import ClusterOptions
from batchplan.runtime import IN_PARTS, Runtime, full_float32
from batchplan.threads import in_blocks
from batchplan.typing import Int64Array

_BLOCK = 2048  # rows of a product
_ROUNDS = 64  # in which first centres are chosen, one or several in each
_RANKED = 16  # nearest centres stored per row; distances to others are computed if these are full

Points = NDArray[np.float32]


@full_float32()
def cluster(embeddings: Embeddings, options: ClusterOptions, runtime: Runtime) -> Draft:
    """Plan by balanced k-means.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d / B) work per iteration.
        options: iterations, and how to cut batches.
        runtime: device, memory budget, seed of the first centres, progress.

    Returns:
        An order of the rows, cluster after cluster.

    Raises:
        InputError: a batch size above N, a zero row under cosine, or a file that was written to.
        ResourceError: not enough memory, or no such device.
    """
    size, iterations = options.rows_per_batch, options.iterations
    points = _points(embeddings, runtime, options.similarity)
    n = len(points)
    count = -(-n // size)
    centres = _first_centres(points, count, runtime)
    nearest = np.full((n, 1), -1, np.int64)
    with runtime.stage("k-means", iterations) as advance:
        for done in range(iterations):
            before = nearest
            nearest, _distances = _rank(points, centres, 1, runtime)
            if np.array_equal(before, nearest):
                advance(iterations - done)
                break
            _move(points, nearest[:, 0], centres)
            advance(1)
    with runtime.stage("balance"):
        ranked, distances = _rank(points, centres, min(_RANKED, count), runtime)
        room = np.full(count, size, np.int64)
        if n % size:  # the smallest cluster becomes the short batch
            room[np.bincount(ranked[:, 0], minlength=count).argmin()] = n % size
        short = room < size
        margin = distances[:, 1] - distances[:, 0] if count > 1 else distances[:, 0]
        rows = np.argsort(-margin, kind="stable")
        batch = _assign(points, centres, rows, ranked, room)
    order = np.lexsort((np.arange(n), batch, short[batch]))
    return Draft(rows=order)


def _points(embeddings: Embeddings, runtime: Runtime, similarity: str) -> Points:
    """float32 (N, d): the means of x and y, which under cosine are first scaled to unit length."""
    n, d = embeddings.x.shape
    embeddings.require_similarities(similarity)
    normalize = similarity == "cosine"
    need = n * (8 * d + 12 * _RANKED + 64) + (64 << 20)
    runtime.require_memory(need, f"cluster: {n} rows of {d} dimensions", IN_PARTS)
    cpu = torch.device("cpu")
    points = np.empty((n, d), np.float32)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        rows = load_rows(embeddings.x, start, stop, cpu, normalize)
        if embeddings.paired:
            rows = (rows + load_rows(embeddings.y, start, stop, cpu, normalize)) / 2
        points[start:stop] = rows.numpy()
        if not np.isfinite(points[start:stop]).all():
            raise changed_error(embeddings.shards[0].path, "values that are not finite")
    return points


def _first_centres(points: Points, count: int, runtime: Runtime) -> Points:
    """Draw first centres in rounds, by the squared distance of rows to the nearest centre so far.

    With up to `_ROUNDS` centres, each round draws one, as k-means++ does. With more, each round
    draws several, so that all rounds together cost as much as one iteration.
    """
    generator = runtime.generator()
    n = len(points)
    chosen = [int(generator.integers(n))]
    distances = np.full(n, np.inf)
    fresh = chosen
    step = -(-count // _ROUNDS)
    with runtime.stage("centres", count) as advance:
        advance(1)
        while len(chosen) < count:
            _, to_fresh = _rank(points, points[fresh], 1, runtime)
            np.minimum(distances, to_fresh[:, 0], out=distances)
            # Duplicates of centres are drawn only if nothing else is left.
            weights = distances + max(distances.max(), 1.0) * 1e-12
            weights[chosen] = 0
            size = min(step, count - len(chosen))
            drawn = generator.choice(n, size, replace=False, p=weights / weights.sum())
            fresh = [int(row) for row in drawn]
            chosen += fresh
            advance(size)
    return points[chosen]


def _rank(
    points: Points, centres: Points, count: int, runtime: Runtime
) -> tuple[Int64Array, NDArray[np.float32]]:
    """The ``count`` nearest centres of each row, nearest first, and their squared distances."""
    n = len(points)
    device = runtime.torch_device()
    on_device = torch.from_numpy(np.ascontiguousarray(centres)).to(device)
    half = 0.5 * (on_device.double() ** 2).sum(1).float()
    indices, distances = np.empty((n, count), np.int64), np.empty((n, count), np.float32)

    def work(start: int, stop: int) -> None:
        rows = torch.from_numpy(points[start:stop]).to(device)
        score, ranked = torch.topk(rows @ on_device.T - half, count, dim=1)
        squared = (rows.double() ** 2).sum(1, keepdim=True).float() - 2 * score
        indices[start:stop] = ranked.cpu().numpy()
        distances[start:stop] = squared.clamp(min=0).cpu().numpy()

    in_blocks(work, n, _BLOCK, device=device)
    return indices, distances


def _move(points: Points, nearest: Int64Array, centres: Points) -> None:
    """Move each centre to the mean of its rows, if it has any."""
    sums = np.zeros(centres.shape)
    _add(points, nearest, sums)
    counts = np.bincount(nearest, minlength=len(centres))
    used = counts > 0
    centres[used] = sums[used] / counts[used, None]


@njit
def _add(points, nearest, sums):  # type: ignore[no-untyped-def]
    for i in range(len(points)):
        total = sums[nearest[i]]
        for j in range(points.shape[1]):
            total[j] += points[i, j]


@njit
def _assign(points, centres, rows, ranked, room):  # type: ignore[no-untyped-def]
    """The cluster of each row: in the order of ``rows``, its nearest centre with room."""
    batch = np.empty(len(rows), np.int64)
    left = room.copy()
    for row in rows:
        best, least = -1, np.inf
        for rank in range(ranked.shape[1]):
            if left[ranked[row, rank]] > 0:
                best = ranked[row, rank]
                break
        if best < 0:
            for centre in range(len(centres)):
                if left[centre] > 0:
                    distance = 0.0
                    for j in range(points.shape[1]):
                        step = points[row, j] - centres[centre, j]
                        distance += step * step
                    if distance < least:
                        best, least = centre, distance
        batch[row] = best
        left[best] -= 1
    return batch
