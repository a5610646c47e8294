"""A mined hard negative for each row, which GCBS is compared with as Hard Negative (1).

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 7 and appendix C: the hardest row of the other side is added for
each row, and an epoch takes twice as many batches.
"""

from __future__ import annotations

from batchplan import data, graph, guard
from batchplan.planners import common
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.common.options import TableOptions
from batchplan.runtime import Runtime


def hardneg(embeddings: data.Embeddings, options: TableOptions, runtime: Runtime) -> Draft | Mined:
    """The negative of each row i is the row j != i with the largest x_i . y_j.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work.
        options: whether to make a table or batches, and groups to keep apart.
        runtime: device, memory budget, seed of the order of the anchors in batches, progress.

    Returns:
        The table; or a plan of about 2 N / B batches, each of B // 2 anchors and their negatives.
        If the batch already holds a negative, its anchor gets the next hardest.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or a row whose group
            holds all others.
        ResourceError: not enough memory, or no such device.
    """
    n = embeddings.num_rows
    apart = guard.group_codes(embeddings, options.label_table, options.group_column)
    # When a negative is chosen, the batch holds fewer than B rows: of B - 1 neighbours one is free.
    count = min(options.rows_per_batch - 1, n - 1) if options.as_batches else 1
    nearest = graph.nearest_neighbors(
        embeddings,
        count,
        runtime,
        similarity=options.similarity,
        guard=guard.Guard(None, tuple(apart)),
    ).indices
    common.require_enough((nearest[:, :1] >= 0).sum(axis=1), 1)
    if options.as_batches:
        return common.anchor_batches(nearest, 1, embeddings, options, runtime, apart)
    return Mined(nearest)
