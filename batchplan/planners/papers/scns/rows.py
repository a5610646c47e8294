"""The instance level of `scns`: draws from the most similar rows (section 3.1.2)."""

import numpy as np
from scipy.special import softmax

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.guard import Guard
from batchplan.planners.common.anchors import require_enough
from batchplan.planners.papers.scns.options import ScnsOptions
from batchplan.runtime import Runtime
from batchplan.typing import Float32Array, Int64Array

DRAWS = 2  # the generator stream of draws, here and for classes
_BLOCK = 1 << 15


def draw_rows(
    embeddings: Embeddings, options: ScnsOptions, runtime: Runtime, guard: Guard
) -> tuple[Int64Array, Float32Array]:
    """Draw negatives of each row by the softmax of similarity over temperature.

    Draws are without replacement: the probabilities of the rows that are left are always
    the softmax among them. That is the order of the logits with Gumbel noise added.

    Args:
        embeddings: N pairs.
        options: how many rows to draw, from how many, and the temperature.
        runtime: device, memory budget, seed, progress.
        guard: of classes, groups and known answers, which are not drawn for each other.

    Returns:
        The rows (N, C) in the order of drawing, and the probability of each in a single draw. With
        ``as_batches``, C is the number of rows to draw from.

    Raises:
        InputError: a zero row under cosine, or a row with too few rows to draw from.
    """
    n, generator = embeddings.num_rows, runtime.generator(DRAWS)
    nearest = nearest_neighbors(
        embeddings, min(options.top_k, n - 1), runtime, similarity=options.similarity,
        guard=guard,
    )  # fmt: skip
    require_enough((nearest.indices >= 0).sum(axis=1), options.per_row)
    count = nearest.indices.shape[1] if options.as_batches else options.per_row
    rows, drawn = np.empty((n, count), np.int64), np.empty((n, count), np.float32)
    with runtime.stage("draw", n) as advance:
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            logits = nearest.similarities[block].astype(np.float64) / options.scns_temperature
            keys = logits + generator.gumbel(size=logits.shape)
            order = np.argsort(-keys, axis=1, kind="stable")[:, :count]
            rows[block] = np.take_along_axis(nearest.indices[block], order, axis=1)
            share = softmax(logits, axis=1)
            drawn[block] = np.take_along_axis(share, order, axis=1)
            advance(len(logits))
    return rows, drawn
