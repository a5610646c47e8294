"""One mined hard negative for each row: what GCBS is compared with as Hard Negative (1).

Sachidananda, Yang and Zhu, "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", ICML 2023, section 7 and appendix C: the hardest row of the other side is added for
each row, and an epoch takes twice as many batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.planners.common.options import PlannerOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from batchplan.data import Embeddings
    from batchplan.plans import Plan
    from batchplan.plans.negatives import Negatives
    from batchplan.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class HardnegOptions(PlannerOptions):
    """Options of `hardneg`.

    Raises:
        InputError: as `PlannerOptions`; a label table without a group column.
    """

    as_batches: bool = option(
        False, "A plan whose batches hold anchors and their negatives, instead of a table."
    )
    group_column: str | None = option(
        None, "Parquet column of groups: no row gets a negative of its own group.", kind="column"
    )
    label_table: str | None = option(
        None,
        "Parquet file of that column, one row a row of the data, instead of the embeddings.",
        kind="path",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_table is not None and self.group_column is None:
            raise InputError("label table: given without --group-column; name a column")

    def makes_partition(self) -> bool:
        return False


def hardneg(embeddings: Embeddings, options: HardnegOptions, runtime: Runtime) -> Plan | Negatives:
    """For each row i the row j with the largest x_i . y_j, j != i: its negative.

    Args:
        embeddings: N pairs of d dimensions; O(N^2 d) work.
        options: whether to make a table or batches, and groups to keep apart.
        runtime: device, memory budget, seed of the order of the anchors in batches, progress.

    Returns:
        The table; or a plan of about 2 N / B batches, each of B // 2 anchors and their negatives. A
        negative that the batch already holds gives way to the next hardest of its anchor.

    Raises:
        InputError: options that do not fit the data, a zero row under cosine, or a row without any
            other of another group.
        ResourceError: not enough memory, or no such device.
    """
    from batchplan.graph import nearest_neighbors
    from batchplan.guard.guard import Guard
    from batchplan.planners.common.negatives import codes_of, require_enough

    n = embeddings.num_rows
    apart = codes_of(embeddings, options.label_table, options.group_column)
    # A batch holds fewer than B rows when one is chosen, so of B - 1 neighbours one is free.
    wanted = min(options.rows_per_batch - 1, n - 1) if options.as_batches else 1
    found = nearest_neighbors(
        embeddings, wanted, runtime, similarity=options.similarity, guard=Guard(None, tuple(apart))
    )
    require_enough((found.indices[:, :1] >= 0).sum(axis=1), 1)
    if options.as_batches:
        from batchplan.planners.common.anchors import batches_of

        return batches_of(found.indices, 1, "hardneg", embeddings, options, runtime, apart)
    return _table(found.indices, embeddings, options, runtime)


def _table(
    nearest: NDArray[np.int64], embeddings: Embeddings, options: HardnegOptions, runtime: Runtime
) -> Negatives:
    import numpy as np

    from batchplan.planners.common.negatives import table_metadata
    from batchplan.plans.negatives import Negatives

    return Negatives(
        np.arange(len(nearest)),
        nearest,
        np.ones(nearest.shape, np.float32),
        None,
        table_metadata("hardneg", embeddings, options, runtime),
    )
