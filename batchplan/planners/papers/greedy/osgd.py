"""Ordered SGD over batches: random batches are drawn, and those with the highest loss are kept.

The adaptive baseline of "Mini-Batch Optimization of Contrastive Loss" (2023), section 4, after
Kawaguchi and Lu, "Ordered SGD: A New Stochastic Optimization Framework for Empirical Risk
Minimization" (AISTATS 2020).
"""

from itertools import combinations
from math import comb

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import both_sides
from batchplan.planners.common.draft import Draft
from batchplan.planners.papers.greedy.kernels import Ints
from batchplan.planners.papers.greedy.options import OsgdOptions
from batchplan.runtime import Runtime
from batchplan.threads import single_threads

_POOLS_AT_ONCE = 8  # pools that are drawn, then scored in parallel


def osgd(embeddings: Embeddings, options: OsgdOptions, runtime: Runtime) -> Draft:
    """Draw pools of random batches, and keep those with the highest contrastive loss of each pool.

    If there are no more than ``pool`` batches of B rows, each pool is all of them, as in the paper.

    Args:
        embeddings: N pairs of d dimensions; only drawn rows are read.
        options: temperature, pool and number of batches. The tail has no effect, because every
            batch is full.
        runtime: seed, progress.

    Returns:
        Batches that are samples: a row may be in several batches or in none. N / B batches take
        (pool / keep) N B d multiply-adds.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
    """
    embeddings.require_similarities(options.similarity)
    n, size = embeddings.num_rows, options.rows_per_batch
    count = options.num_batches or -(-n // size)
    generator = runtime.generator()
    kept: list[Ints] = []
    every = all_batches(n, size, options.pool)

    def loss(batch: Ints) -> float:
        return contrastive_loss(embeddings, batch, options.similarity, options.temperature)

    with runtime.stage("choose", count) as advance, single_threads() as pool:
        while len(kept) < count:
            pools = min(_POOLS_AT_ONCE, -(-(count - len(kept)) // options.keep))
            drawn = every * pools or [
                generator.choice(n, size, replace=False) for _ in range(pools * options.pool)
            ]
            losses = np.reshape(list(pool.map(loss, drawn)), (pools, -1))
            # Stable: of equal losses, the batch drawn first comes first.
            best = np.argsort(-losses, axis=1, kind="stable")[:, : options.keep]
            best += losses.shape[1] * np.arange(pools)[:, None]
            chosen = best.ravel()[: count - len(kept)]
            kept += [drawn[batch] for batch in chosen]
            advance(len(chosen))
    return Draft(rows=np.concatenate(kept), offsets=size * np.arange(count + 1))


def all_batches(num_rows: int, batch_size: int, most: int) -> list[Ints]:
    """Return all sets of ``batch_size`` rows, or none if there are more than ``most``."""
    if num_rows > max(most, batch_size) or comb(num_rows, batch_size) > most:
        return []
    return [np.array(rows) for rows in combinations(range(num_rows), batch_size)]


def contrastive_loss(
    embeddings: Embeddings, batch: Ints, similarity: str, temperature: float
) -> float:
    """Return the symmetric contrastive loss of a batch (section 2), in float64 from float32
    rows."""
    x, y = both_sides(embeddings, torch.device("cpu"), similarity == "cosine", batch)
    logits = (x.double() @ y.double().T).div_(temperature)
    sums = torch.logsumexp(logits, 0) + torch.logsumexp(logits, 1)
    return float((sums - 2 * logits.diagonal()).mean())
