"""Options of `knn`."""

from dataclasses import dataclass

from batchplan.options import option
from batchplan.planners.common.options import PassOptions, PlannerOptions


@dataclass(frozen=True, kw_only=True)
class KnnOptions(PassOptions, PlannerOptions):
    """Options of `knn`."""

    neighbors: int = option(256, "Nearest neighbours per row; at least the batch size.", ge=1)
