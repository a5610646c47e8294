"""Batches cut from chains, in which each row is similar to the row before it.

Byun et al., "GRIT-VLP: Grouped Mini-batch Sampling for Efficient Vision and Language Pre-training",
ECCV 2022 (arXiv 2208.04060), section 4.1: rows are dealt to search spaces at random. In a space, a
chain goes from a random x to the most similar y that is left, then to the most similar x that is
left, and so on. Kim, Shim and Lee, "FALCON: False-Negative Aware Learning of Contrastive
Negatives in Vision-Language Alignment", CVPR 2026 (arXiv 2505.11192), take the similarity at a
quantile instead of the largest.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import Embeddings
from batchplan.data.rows import both_sides
from batchplan.guard.guard import guard_of
from batchplan.guard.rules import breaks
from batchplan.kernels import njit
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.chain.options import ChainOptions
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import in_order
from batchplan.typing import Int64Array

_JUDGED = np.empty((0, 0), np.float32), np.empty((0, 0), np.float32), False  # of `Rules.compiled`


@full_float32()
def chain(embeddings: Embeddings, options: ChainOptions, runtime: Runtime) -> Draft:
    """Plan by chains of similar rows.

    Args:
        embeddings: N pairs of d dimensions. Spaces of M rows take N M d multiply-adds and N M / 2
            comparisons, on the CPU, and at most 16 M^2 bytes for each thread.
        options: spaces, hardness, guard and batches.
        runtime: threads, memory budget, seed of the spaces and of the first row of each, progress.

    Returns:
        An order of the rows.

    Raises:
        InputError: no such group column, a zero row under cosine, or products that overflow
            float32.
        ResourceError: not enough memory.
    """
    n, size = embeddings.num_rows, options.rows_per_batch
    embeddings.require_similarities(options.similarity)
    batches = -(-n // size)
    count = -(-batches // options.batches_of_space())
    ends = [min(part[-1] + 1, batches) * size for part in np.array_split(np.arange(batches), count)]
    spaces = np.split(runtime.generator().permutation(n), ends[:-1])
    largest, d = max(map(len, spaces)), embeddings.x.shape[1]
    need = torch.get_num_threads() * (16 * largest**2 + 20 * largest * d)
    runtime.require_memory(need, f"chain: spaces of {largest} rows", "use a smaller --space-rows")
    guard = guard_of(embeddings, options, runtime)
    separate, ceilings = guard.compiled()

    def work(rows: Int64Array) -> Int64Array:
        order = np.argsort(rows)
        start, rows = int(order.argmin()), rows[order]
        similarities = judged = _similarities(embeddings, rows, options.similarity)
        if guard.reference is not None:
            judged = _similarities(guard.reference, rows, options.similarity)
        along = _follow(
            similarities,
            np.ascontiguousarray(similarities.T),
            start,
            options.hardness,
            np.maximum(judged, judged.T) if guard.ceilings is not None else judged,
            (separate.take(rows), ceilings[rows] if len(ceilings) else ceilings, *_JUDGED),
        )
        taken: Int64Array = rows[along]
        return taken

    with runtime.stage("chain", n) as advance:
        chains = []
        for rows in in_order(work, spaces):
            chains.append(rows)
            advance(len(rows))
    return Draft(rows=np.concatenate(chains), guard=guard)


def _similarities(embeddings: Embeddings, rows: Int64Array, similarity: str) -> NDArray[np.float32]:
    """float32 (m, m): s_ij of the rows (m,)."""
    x, y = both_sides(embeddings, torch.device("cpu"), similarity == "cosine", rows)
    products: NDArray[np.float32] = (x @ y.T).numpy()
    return products


@njit
def _follow(forward, backward, start, hardness, judged, rules):  # type: ignore[no-untyped-def]
    """Return the chain, int64 (m,).

    Args:
        forward: float32 (m, m), s_ij.
        backward: its transpose.
        start: the first row.
        hardness: a quantile.
        judged: float32 (m, m), the larger of s_ij and s_ji, which the guard compares with ceilings.
        rules: of the guard, as `Rules.compiled`; they need no rows, since ``judged`` has both s_ij
            and s_ji.

    The next row is at the quantile of the rows that are left and that the guard allows in a batch
    with the last row; of all rows that are left, if it allows none. Of rows with equal
    similarities, the lower row counts as more similar.
    """
    m = len(forward)
    order, left = np.empty(m, np.int64), np.arange(m)
    candidates, values = np.empty(m, np.int64), np.empty(m, np.float32)
    here, place = start, start
    for step in range(m):
        order[step] = here
        left[place : m - step - 1] = left[place + 1 : m - step]
        if step == m - 1:
            break
        ahead = backward if step % 2 else forward
        rest = left[: m - step - 1]
        count = 0
        for k in range(rest.size):
            if not breaks(here, rest[k], judged[here, rest[k]], rules):
                candidates[count] = k
                count += 1
        if count == 0:
            count = rest.size
            candidates[:count] = np.arange(count)
        for c in range(count):
            values[c] = ahead[here, rest[candidates[c]]]
        rank = np.int64((1 - hardness) * (count - 1))
        if rank == 0:
            place = candidates[np.argmax(values[:count])]
        else:
            place = candidates[np.argsort(-values[:count], kind="mergesort")[rank]]
        here = rest[place]
    return order
