"""Greedy batches of high contrastive loss: a batch chooses its rows, or a row its batch.

"Mini-Batch Optimization of Contrastive Loss" (2023), section 4 and algorithms 1 (`bcs`) and 2
(`scb`), and their variants with a share of random rows. Every batch gets one row in each round, so
that all compared batches have the same size.
"""

from concurrent.futures import Executor

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.greedy.kernels import (
    Bins,
    Ints,
    Logits,
    first_best,
    losses_of_bins,
)
from batchplan.planners.papers.greedy.options import GreedyOptions
from batchplan.runtime import Runtime, format_bytes
from batchplan.threads import single_threads

_ARRIVALS = 128  # rows of `scb` that are scored in one product
_MEMBERS = 2048  # rows of batches that a thread multiplies with these in one product
_CANDIDATES = 512  # rows that a thread scores for a batch in one call


def bcs(embeddings: Embeddings, options: GreedyOptions, runtime: Runtime) -> Draft:
    """Batch chooses sample (section 4, algorithm 1).

    In each round, each batch in turn takes the row that makes its loss largest; ties go to the
    lowest row.

    Args:
        embeddings: N pairs of d dimensions.
        options: temperature and batches.
        runtime: memory budget, seed, progress; the work is done on the CPU.

    Returns:
        An order of the rows. It takes 2 N^2 d multiply-adds, N^2 B / 3 exponential sums and 16 N^2
        bytes of logits (8 N^2 for one matrix), which are computed on use if they do not fit.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
        ResourceError: not enough memory for the rows.
    """
    bins, left = _begin(embeddings, options, runtime, "bcs")
    left.sort()  # so that the first of equal candidates is the lowest row
    n, d = embeddings.x.shape
    need = 8 * (1 + embeddings.paired) * n * (n + d)
    spare = scratch(d, options.rows_per_batch) * torch.get_num_threads()
    keeps = need + spare <= runtime.memory_left()
    how = "kept" if keeps else "do not fit, so they are computed for each choice"
    updates = n * n * options.rows_per_batch / 6
    runtime.note("cost", f"{updates:.2g} updates of sums; {format_bytes(need)} of logits {how}")
    with runtime.stage("choose", len(left)) as advance, single_threads() as pool:
        if keeps:
            bins.pairs.store(pool)
        while len(left):
            indices = bins.open()
            chosen = indices.copy()
            for j in indices:
                chosen[j], left = _take_best(bins, int(j), left, pool)
                advance(1)
            bins.join(indices, chosen)
            bins.size += 1
    return Draft(rows=bins.order())


def scb(embeddings: Embeddings, options: GreedyOptions, runtime: Runtime) -> Draft:
    """Sample chooses batch (section 4, algorithm 2).

    Rows come in random order. Each joins the batch whose loss with it is largest, among those
    without a new row in this round; ties go to the first batch.

    Args:
        embeddings: N pairs of d dimensions.
        options: temperature and batches.
        runtime: memory budget, seed, progress; the work is done on the CPU.

    Returns:
        An order of the rows. It takes at most N^2 d multiply-adds and N^2 exponential sums, in
        O(N d) memory.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
        ResourceError: not enough memory for the rows.
    """
    bins, arriving = _begin(embeddings, options, runtime, "scb")
    with runtime.stage("choose", len(arriving)) as advance, single_threads() as pool:
        while len(arriving):
            indices = bins.open()
            while len(indices):
                count = min(_ARRIVALS, len(indices))
                rows, arriving = arriving[:count], arriving[count:]
                chosen, indices = _choose_bins(bins, rows, indices, pool)
                bins.join(chosen, rows)
                advance(len(rows))
            bins.size += 1
    return Draft(rows=bins.order())


def _begin(
    embeddings: Embeddings, options: GreedyOptions, runtime: Runtime, planner: str
) -> tuple[Bins, Ints]:
    """Return bins of equally many random rows, and the other rows in random order.

    A bin starts with the first rows of a batch of `random`.
    """
    order = runtime.generator().permutation(embeddings.num_rows)
    embeddings.require_similarities(options.similarity)
    n, d = embeddings.x.shape
    need = (4 * d * (1 + embeddings.paired) + 64) * n
    need += scratch(d, options.rows_per_batch) * torch.get_num_threads()
    what = f"{planner}: {n} rows of {d} dimensions"
    runtime.require_memory(need, what, "plan fewer rows at a time")
    with runtime.stage("read rows"):
        bins = Bins(
            Logits(embeddings, options.similarity, options.temperature), options.rows_per_batch
        )
    places: list[Ints] = []
    for size in range(max(1, round(options.random_fraction * options.rows_per_batch))):
        indices = bins.open()
        places.append(indices * options.rows_per_batch + size)
        bins.join(indices, order[places[-1]])
        bins.size += 1
    return bins, np.delete(order, np.concatenate(places))


def scratch(dim: int, batch_size: int) -> int:
    """Return the largest number of bytes of a thread, for rows in both precisions and their
    logits."""
    return 2 * (max(_MEMBERS, batch_size) + _ARRIVALS) * (12 * dim + 8 * _ARRIVALS) + (16 << 20)


def _choose_bins(bins: Bins, arriving: Ints, indices: Ints, pool: Executor) -> tuple[Ints, Ints]:
    """Return the bin of each arriving row, in order, each bin once; and the bins that are left."""
    pairs, k = bins.pairs, bins.size
    own = pairs.own[arriving]
    losses = np.empty((len(arriving), len(indices)))

    def score(start: int) -> None:
        block = indices[start : start + step]
        to_y, to_x = pairs.logits(arriving, bins.members[block, :k].ravel())
        out = np.empty((len(arriving), len(block)))
        losses_of_bins(
            to_y, to_x, own, bins.sums_x[block, :k], bins.sums_y[block, :k],
            bins.base[block], out,
        )  # fmt: skip
        losses[:, start : start + step] = out

    step = max(1, _MEMBERS // k)
    list(pool.map(score, range(0, len(indices), step)))
    chosen = np.empty(len(arriving), np.int64)
    for t in range(len(arriving)):
        chosen[t] = first_best(losses[t])
        losses[t + 1 :, chosen[t]] = -np.inf
    return indices[chosen], np.delete(indices, chosen)


def _take_best(bins: Bins, j: int, left: Ints, pool: Executor) -> tuple[int, Ints]:
    """Return the row that bin ``j`` takes from ``left``, and the rows that remain."""
    pairs, k, own = bins.pairs, bins.size, slice(j, j + 1)
    losses = np.empty((len(left), 1))

    def score(start: int) -> None:
        block = slice(start, start + _CANDIDATES)
        losses_of_bins(
            *pairs.logits(left[block], bins.members[j, :k]), pairs.own[left[block]],
            bins.sums_x[own, :k], bins.sums_y[own, :k], bins.base[own], losses[block],
        )  # fmt: skip

    list(pool.map(score, range(0, len(left), _CANDIDATES)))
    best = first_best(losses)
    return int(left[best]), np.delete(left, best)
