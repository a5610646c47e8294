"""Mines hard negatives of each row. One per row is the baseline Hard Negative (1) of GCBS.

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 7 and appendix C: each row gets the hardest row of the other side,
and an epoch takes twice as many batches. With a limit, mining is positive-aware (NV-Retriever:
Moreira et al. 2024, arXiv 2407.15831).
"""

from __future__ import annotations

from dataclasses import dataclass

from batchplan import data, guard
from batchplan.errors import OptionError
from batchplan.guard.options import OptionalGuardOptions
from batchplan.options import option
from batchplan.planners.common.draft import Draft, Mined
from batchplan.planners.common.options import TableOptions
from batchplan.runtime import WARNING, Runtime


@dataclass(frozen=True, kw_only=True)
class HardnegOptions(OptionalGuardOptions, TableOptions):
    """Options of `hardneg`.

    Raises:
        OptionError: as its bases; fewer than one negative per row.
    """

    per_row: int = option(1, "Negatives per row, the hardest first.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guard_penalty is not None:
            raise OptionError(
                f"guard penalty: got {self.guard_penalty}, but no negative breaks the guard here; "
                "leave it out"
            )


def hardneg(
    embeddings: data.Embeddings, options: HardnegOptions, runtime: Runtime
) -> Draft | Mined:
    """Mine the negatives of each row i: the rows j != i with the largest x_i . y_j among those that
    the guard allows.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work.
        options: how many negatives, a table or batches, and the guard.
        runtime: device, memory budget, seed of the order of the anchors in batches, progress.

    Returns:
        A table; rows with fewer than M negatives are left out, and their number is reported to the
        observer. With ``as_batches``, a plan of about N (1 + M) / B batches of B // (1 + M) anchors
        and their M negatives; if the batch has a negative already, its anchor gets the next
        hardest.

    Raises:
        OptionError: options that do not fit the data, a zero row under cosine, or too few possible
            negatives: for every row, or, in a plan, for any row.
        ResourceError: not enough memory, or no such device.
    """
    import numpy as np  # --help loads this file

    from batchplan.graph.neighbors import nearest_neighbors
    from batchplan.planners.common.anchors import anchor_batches, check_batch, require_enough

    n, wanted = embeddings.num_rows, options.per_row
    if options.as_batches:
        check_batch(options.rows_per_batch, wanted)
    keep_apart = guard.guard_of(embeddings, options, runtime, strict=True)
    # When a negative is chosen, the batch has less than B rows, so one of B - 1 neighbours is free.
    count = min(options.rows_per_batch - 1 if options.as_batches else wanted, n - 1)
    nearest = nearest_neighbors(
        embeddings, count, runtime, similarity=options.similarity, guard=keep_apart
    ).indices
    found = (nearest[:, :wanted] >= 0).sum(axis=1)
    enough = np.flatnonzero(found >= wanted)
    if options.as_batches or not len(enough):
        require_enough(found, wanted)
    if options.as_batches:
        apart = keep_apart.apart
        return anchor_batches(nearest, wanted, options, runtime, apart, apart)
    if len(enough) == n:
        return Mined(nearest)
    runtime.note(
        WARNING,
        f"{n - len(enough):,} of {n:,} rows are left out of the table: the guard allows fewer than "
        f"{wanted} negatives for each",
    )
    return Mined(nearest[enough], anchors=enough)
