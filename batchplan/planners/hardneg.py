"""Mined hard negatives for each row; one is what GCBS is compared with as Hard Negative (1).

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 7 and appendix C: the hardest row of the other side is added for
each row, and an epoch takes twice as many batches. With a limit, mining is positive-aware
(NV-Retriever: Moreira et al. 2024, arXiv 2407.15831).
"""

from __future__ import annotations

from dataclasses import dataclass

from batchplan import data, graph, guard
from batchplan.errors import InputError
from batchplan.guard.options import GuardOptions
from batchplan.options import option
from batchplan.planners import common
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.common.options import TableOptions
from batchplan.runtime import WARNING, Runtime


@dataclass(frozen=True, kw_only=True)
class HardnegOptions(GuardOptions, TableOptions):
    """Options of `hardneg`.

    Raises:
        InputError: as its bases; fewer than one negative a row.
    """

    per_row: int = option(1, "Negatives per row, the hardest first.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guard_penalty is not None:
            raise InputError(
                f"guard penalty: got {self.guard_penalty}, but no negative breaks the guard here; "
                "leave it out"
            )


def hardneg(
    embeddings: data.Embeddings, options: HardnegOptions, runtime: Runtime
) -> Draft | Mined:
    """The negatives of each row i are the rows j != i with the largest x_i . y_j that no guard
    keeps apart from it.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work.
        options: how many, whether to make a table or batches, and the guard.
        runtime: device, memory budget, seed of the order of the anchors in batches, progress.

    Returns:
        The table, without rows that have fewer negatives, which the observer is told of; or a plan
        of about N (1 + M) / B batches, each of B // (1 + M) anchors and their
        M negatives. If the batch already holds a negative, its anchor gets the next hardest.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or too few rows to
            draw from: for all rows, or for one that needs a batch.
        ResourceError: not enough memory, or no such device.
    """
    import numpy as np  # --help loads this file

    n, wanted = embeddings.num_rows, options.per_row
    if options.as_batches:
        common.check_batch(options.rows_per_batch, wanted)
    keep_apart = guard.guard_of(embeddings, options, runtime)
    # When a negative is chosen, the batch holds fewer than B rows: of B - 1 neighbours one is free.
    count = min(options.rows_per_batch - 1 if options.as_batches else wanted, n - 1)
    nearest = graph.nearest_neighbors(
        embeddings, count, runtime, similarity=options.similarity, guard=keep_apart
    ).indices
    found = (nearest[:, :wanted] >= 0).sum(axis=1)
    enough = np.flatnonzero(found >= wanted)
    if options.as_batches or not len(enough):
        common.require_enough(found, wanted)
    if options.as_batches:
        apart = keep_apart.apart
        return common.anchor_batches(nearest, wanted, embeddings, options, runtime, apart)
    if len(enough) == n:
        return Mined(nearest)
    runtime.note(
        WARNING,
        f"{n - len(enough):,} of {n:,} rows have fewer than {wanted} rows that the guard allows as "
        "negatives, and are left out of the table",
    )
    return Mined(nearest[enough], anchors=enough)
