"""Options of `cluster`."""

from dataclasses import dataclass

from batchplan.options import option
from batchplan.planners.common.options import PassOptions, PlannerOptions


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(PassOptions, PlannerOptions):
    """Options of `cluster`."""

    iterations: int = option(10, "Iterations of k-means at most.", ge=0)
