"""The proximity graph of BatchSampler: of M random candidates per row, the K most similar.

Yang et al., "BatchSampler: Sampling Mini-Batches for Contrastive Learning in Vision, Language, and
Graphs", KDD 2023, section 4.1 and algorithm 2. Candidates are drawn by counter, row by row, so they
do not depend on threads or on the size of blocks.
"""

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows, load_rows
from batchplan.graph.documents import Neighbors
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.guard import Guard
from batchplan.guard.rules import breaks, bytes_of_rows, rules_of
from batchplan.kernels import dot, insert, njit
from batchplan.planners.papers.rwr.counter_random import below, stream
from batchplan.runtime import FEWER, Runtime
from batchplan.threads import in_blocks

_BLOCK = 256  # rows that a thread takes at once
_CANDIDATES = 2  # the generator stream of the candidates
_FIXED = 64 << 20  # bytes: blocks of x, hash tables, kernels
_ROW_BYTES = 48  # of a walk, for each row


def proximity_graph(
    embeddings: Embeddings,
    candidates: int,
    neighbors: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    guard: Guard | None = None,
) -> Neighbors:
    """Algorithm 2: the ``neighbors`` most similar of ``candidates`` random rows, for every row.

    The candidates of a row are a random subset of the other rows. Takes N M d multiply-adds on the
    CPU. If all other rows are candidates, the graph is made by `nearest_neighbors`, which also runs
    on CUDA.

    Args:
        embeddings: N pairs of d dimensions.
        candidates: M, at least 1; capped at N - 1.
        neighbors: K, at least 1; capped at M.
        runtime: seed of the candidates, threads, memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        guard: excludes candidates that break it with their row.

    Returns:
        The graph; its indices are int32, int64 only from 2^31 rows on.

    Raises:
        InputError: as `Embeddings.require_similarities`.
        ResourceError: the graph does not fit into the memory budget.
    """
    n, d = embeddings.y.shape
    m = min(candidates, n - 1)
    k = min(neighbors, m)
    exact = m == n - 1
    embeddings.require_similarities(similarity)
    index = np.dtype(np.int32 if n < 2**31 else np.int64)
    neighbor_bytes = 4 + index.itemsize + 8 * exact  # the exact search starts with int64 indices
    rows = n * (4 * d + bytes_of_rows(guard, embeddings) + _ROW_BYTES) + _FIXED
    what = f"proximity graph: {k} neighbours of each of {n} rows x {d}"
    runtime.require_memory(rows + n * k * neighbor_bytes, what, FEWER)
    if exact:
        nearest = nearest_neighbors(embeddings, k, runtime, similarity=similarity, guard=guard)
        return Neighbors(nearest.indices.astype(index, copy=False), nearest.similarities)
    graph = Neighbors(np.empty((n, k), index), np.empty((n, k), np.float32))
    cpu, normalize = torch.device("cpu"), similarity == "cosine"
    all_keys = load_all_rows(embeddings.y, cpu, normalize)
    keys, rules = all_keys.numpy(), rules_of(guard, embeddings, all_keys, normalize).compiled()
    key = runtime.generator(_CANDIDATES).integers(2**64, dtype=np.uint64)

    def work(start: int, stop: int) -> None:
        rows = load_rows(embeddings.x, start, stop, cpu, normalize).numpy()
        block = graph.indices[start:stop], graph.similarities[start:stop]
        _search_block(rows, keys, start, key, m, rules, *block)

    with runtime.stage("neighbors", n) as advance:
        in_blocks(work, n, _BLOCK, advance)
    return graph


@njit
def _search_block(  # type: ignore[no-untyped-def]
    rows, keys, first_row, key, m, rules, indices, similarities
):
    n = keys.shape[0]
    size = 4
    while size < 2 * m:
        size *= 2
    table = np.empty(size, np.int64)
    drawn = np.empty(m, np.int64)
    similarities[:] = -np.inf
    indices[:] = -1
    for r in range(rows.shape[0]):
        draw_candidates(key, first_row + r, n, drawn, table)
        values, columns = similarities[r], indices[r]
        for j in drawn:
            value = dot(rows[r], keys[j])
            # Candidates are in random order, so ties compare their numbers.
            better = (value, -j) > (values[-1], -columns[-1])
            if better and not breaks(first_row + r, j, value, rules):
                insert(value, j, values, columns)


@njit
def draw_candidates(key, row, n, drawn, table):  # type: ignore[no-untyped-def]
    """Fill ``drawn``, int64 (M,), with a random subset of the rows other than ``row``.

    Robert Floyd's sampler (Bentley and Floyd, "A sample of brilliance", CACM 1987), which needs M
    draws and no retries: step t draws from the first N - M + t of the N - 1 others, and takes the
    last of these if it drew a row that it has already. ``table``, int64, is room for a hash set;
    its length is a power of two of at least 2 M.
    """
    m = drawn.size
    own = stream(key, row)
    table[:] = -1
    for t in range(m):
        last = n - 1 - m + t
        pick = below(own, t, last + 1)
        if not _add(table, pick):
            pick = last
            _add(table, pick)
        drawn[t] = pick + (pick >= row)  # skips ``row``


@njit
def _add(table, value):  # type: ignore[no-untyped-def]
    """Add a value to a hash set with linear probing; False if it was there."""
    mask = table.size - 1
    slot = np.int64((np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while table[slot] >= 0:
        if table[slot] == value:
            return False
        slot = (slot + 1) & mask
    table[slot] = value
    return True
