"""Semantically conditioned negative sampling: draws negatives from the most similar rows.

O'Neill and Bollegala, "Semantically-Conditioned Negative Samples for Efficient Contrastive
Learning", section 3.1.2.
"""

import numpy as np

from batchplan.data import Embeddings
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.guard import Guard, group_codes
from batchplan.planners.common.anchors import anchor_batches, check_batch, require_enough
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.scns.options import ScnsOptions
from batchplan.runtime import Runtime

_DRAWS = 2  # the generator stream of draws
_BLOCK = 1 << 15  # rows whose negatives are drawn together


def scns(embeddings: Embeddings, options: ScnsOptions, runtime: Runtime) -> Draft | Mined:
    """Draw M distinct negatives for every row by the softmax of similarity over temperature.

    Draws are without replacement: each draw uses the softmax over the rows that are left. Sorting
    the logits with Gumbel noise added gives the same distribution.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work.
        options: how many rows to draw, from how many, and whether to make a table or batches.
        runtime: device, memory budget, seed of every draw, progress.

    Returns:
        A table, with the probability of each negative in a single draw; or batches in which
        B // (1 + M) anchors are followed by their negatives.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or a row with fewer
            than M rows to draw from.
        ResourceError: not enough memory, or no such device.
    """
    if options.as_batches:
        check_batch(options.rows_per_batch, options.per_row)
    groups = group_codes(embeddings, options.label_table, options.group_column)
    n, generator = embeddings.num_rows, runtime.generator(_DRAWS)
    nearest = nearest_neighbors(
        embeddings, min(options.top_k, n - 1), runtime, similarity=options.similarity,
        guard=Guard(None, tuple(groups)),
    )  # fmt: skip
    require_enough((nearest.indices >= 0).sum(axis=1), options.per_row)
    # A batch may have a negative already, so its anchor may need any of the others.
    count = nearest.indices.shape[1] if options.as_batches else options.per_row
    rows, probabilities = np.empty((n, count), np.int64), np.empty((n, count), np.float32)
    with runtime.stage("draw", n) as advance:
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            logits = nearest.similarities[block].astype(np.float64) / options.scns_temperature
            logits -= logits[:, :1]  # the largest, so that exp cannot overflow
            share = np.exp(logits)
            share /= share.sum(axis=1, keepdims=True)
            keys = logits + generator.gumbel(size=logits.shape)
            order = np.argsort(-keys, axis=1, kind="stable")[:, :count]
            rows[block] = np.take_along_axis(nearest.indices[block], order, axis=1)
            probabilities[block] = np.take_along_axis(share, order, axis=1)
            advance(len(logits))
    if options.as_batches:
        return anchor_batches(rows, options.per_row, embeddings, options, runtime, groups)
    return Mined(rows, probabilities)
