"""The graph that `partition` cuts: the nearest neighbours of each row within its mega-batch."""

import numpy as np
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.graph.affinity import Affinity, affinity_graph, neighbor_lists
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.graph.probing import probed_neighbors
from batchplan.guard.guard import Guard
from batchplan.planners.partition.layout import Int64Array
from batchplan.planners.partition.options import PartitionOptions
from batchplan.refinement.objective import FADING, Objective
from batchplan.runtime import Runtime

Float32Array = NDArray[np.float32]


def ranked_neighbors(
    embeddings: Embeddings,
    rows: Int64Array,
    guard: Guard,
    options: PartitionOptions,
    runtime: Runtime,
) -> tuple[list[Int64Array], Float32Array | None]:
    """Lists of neighbours (n, k), -1 for none, of some of the rows among each other; and the window
    of similarities that the rank window stands for, float32 (2, n), None without one."""
    n, (skipped, taken) = embeddings.num_rows, options.window()
    count = 1 if options.rank_window or not embeddings.paired else 2
    lists = [np.full((n, taken), -1, np.int64) for _ in range(count)]
    window = _no_window(n) if options.rank_window else None
    if len(rows) < 2:
        return lists, window
    part = embeddings if len(rows) == n else embeddings.take(rows)
    guard = guard if len(rows) == n else guard.among(rows)
    similarity = options.similarity
    if window is None:
        own = neighbor_lists(part, taken, runtime, similarity=similarity, guard=guard)
    else:
        k = min(skipped + taken, len(rows) - 1)
        ranked = nearest_neighbors(part, k, runtime, similarity=similarity, guard=guard)
        own = [ranked.indices[:, skipped:]]
        window[:, rows] = _window(ranked.similarities, skipped)
    for whole, some in zip(lists, own, strict=True):
        whole[rows, : some.shape[1]] = np.where(some >= 0, rows[some], -1)
    return lists, window


def neighbor_graph(
    lists: list[Int64Array],
    start: Int64Array | None,
    objective: Objective,
    options: PartitionOptions,
    runtime: Runtime,
) -> Affinity:
    """The graph of the lists of neighbours; with none, of those that the batches of the plan to
    start from lead to."""
    x, y, size = objective.x, objective.y, options.unit_size()
    if start is not None and not lists:
        offsets = np.append(np.arange(0, len(start), size), len(start))
        guard = objective.guard
        k, reference = options.neighbors, objective.reference
        negatives = tuple(objective.negatives)
        lists = [probed_neighbors(x, y, start, offsets, k, guard, runtime, reference, negatives)]
    graph = affinity_graph(
        lists,
        x,
        y,
        runtime,
        negatives=objective.negatives,
        missing=objective.missing,
        ceilings=objective.guard.ceilings,
        batch_size=size,
        temperature=options.temperature,
        mutual=options.mutual,
    )
    return graph.faded(objective.met, FADING)


def _window(similarities: Float32Array, skipped: int) -> Float32Array:
    """(2, n): the similarity of the last neighbour that counts, and of the last that does not as it
    is too near; a row with too few neighbours has none that counts."""
    if skipped >= similarities.shape[1]:
        return _no_window(len(similarities))
    too_near = similarities[:, skipped - 1] if skipped else np.full(len(similarities), np.inf)
    least = np.where(np.isfinite(similarities), similarities, np.inf).min(axis=1)
    return np.stack([least, too_near]).astype(np.float32)


def _no_window(num_rows: int) -> Float32Array:
    """(2, n): no similarity counts."""
    return np.tile(np.array([[np.inf], [-np.inf]], np.float32), num_rows)
