"""Ordered SGD over batches: of some random batches, train on those of the highest loss.

The adaptive baseline of "Mini-Batch Optimization of Contrastive Loss" (2023), section 4, after
Kawaguchi and Lu, "Ordered SGD: A New Stochastic Optimization Framework for Empirical Risk
Minimization" (AISTATS 2020).
"""

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import to_float32
from batchplan.planners.common.draft import Draft
from batchplan.planners.common.finish import SHUFFLE
from batchplan.planners.greedy.kernels import Ints, workers
from batchplan.planners.greedy.options import OsgdOptions
from batchplan.runtime import Runtime

_POOLS_AT_ONCE = 8  # pools that are drawn before they are scored, on as many threads as there are


def osgd(embeddings: Embeddings, options: OsgdOptions, runtime: Runtime) -> Draft:
    """Draw pools of random batches and keep of each those of the highest contrastive loss.

    Args:
        embeddings: N pairs of d dimensions; only the rows drawn are read.
        options: temperature, pool and number of batches; the tail does not matter, as every batch
            is full.
        runtime: seed, progress.

    Returns:
        Batches that are samples: a row is in any number of batches, or in none. (pool / keep) N B d
        multiply-adds for N / B batches.

    Raises:
        InputError: options that do not fit the data, or a zero row under cosine.
    """
    embeddings.require_similarities(options.similarity)
    n, size = embeddings.num_rows, options.rows_per_batch
    wanted = options.num_batches or -(-n // size)
    generator = runtime.generator()
    kept: list[Ints] = []

    def loss(batch: Ints) -> float:
        return contrastive_loss(embeddings, batch, options.similarity, options.temperature)

    with runtime.stage("choose", wanted) as advance, workers() as spread:
        while len(kept) < wanted:
            pools = min(_POOLS_AT_ONCE, -(-(wanted - len(kept)) // options.keep))
            drawn = [generator.choice(n, size, replace=False) for _ in range(pools * options.pool)]
            losses = np.reshape(spread(loss, drawn), (pools, options.pool))
            # Stable, so of equal losses the batch drawn first is kept first.
            best = np.argsort(-losses, axis=1, kind="stable")[:, : options.keep]
            best += options.pool * np.arange(pools)[:, None]
            found = [drawn[one] for one in best.ravel()][: wanted - len(kept)]
            kept += found
            advance(len(found))
    if options.batch_order == "shuffled":
        kept = [kept[one] for one in runtime.generator(SHUFFLE).permutation(wanted)]
    offsets = size * np.arange(wanted + 1)
    return Draft(rows=np.concatenate(kept), offsets=offsets)


def contrastive_loss(
    embeddings: Embeddings, batch: Ints, similarity: str, temperature: float
) -> float:
    """The symmetric contrastive loss of a batch (section 2), in float64 from float32 rows."""
    x, y = (
        to_float32(torch.from_numpy(side.take(batch)), torch.device("cpu"), similarity == "cosine")
        for side in (embeddings.x, embeddings.y)
    )
    logits = (x.double() @ y.double().T).div_(temperature)
    sums = torch.logsumexp(logits, 0) + torch.logsumexp(logits, 1)
    return float((sums - 2 * logits.diagonal()).mean())
