"""What the planners that make tables of negatives share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchplan.data import load_labels
from batchplan.errors import InputError
from batchplan.planners.common.cut import batching_of, provenance_of
from batchplan.plans.metadata import PlanMetadata

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.planners.common.options import PlannerOptions
    from batchplan.runtime import Runtime


def codes_of(
    embeddings: Embeddings, table: str | None, *columns: str | None
) -> list[NDArray[np.int64]]:
    """Codes (N,) of each column that is named; see `load_labels`."""
    return [load_labels(name, embeddings, table) for name in columns if name is not None]


def table_metadata(
    planner: str, embeddings: Embeddings, options: PlannerOptions, runtime: Runtime
) -> PlanMetadata:
    """The metadata of a table of negatives."""
    return PlanMetadata.stamped(
        batching_of(options),
        provenance_of(planner, embeddings, options, runtime),
        embeddings.num_rows,
        partitions_rows=False,
    )


def require_enough(found: NDArray[np.int64], wanted: int) -> None:
    """Require ``wanted`` possible negatives of every row; ``found`` (N,) is how many there are.

    Raises:
        InputError: naming the first row that has fewer.
    """
    if (few := np.flatnonzero(found < wanted)).size:
        row = int(few[0])
        raise InputError(
            f"negatives: row {row} has {found[row]} rows to draw from, expected at least {wanted} "
            f"({few.size} rows have fewer): the others share its label or group, or are beyond "
            "top_k; ask for fewer --negatives, or a larger --top-k"
        )
