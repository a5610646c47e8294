"""Options of `b3`."""

from dataclasses import dataclass

from batchplan.options import BatchOrder, option
from batchplan.planners.common.options import PlannerOptions, shuffled_order


@dataclass(frozen=True, kw_only=True)
class B3Options(PlannerOptions):
    """Options of `b3`.

    Raises:
        InputError: as `PlannerOptions`.
    """

    batch_order: BatchOrder = shuffled_order()
    skip_nearest: int = option(30, "Nearest rows per row to leave out.", ge=0)
    neighbors: int = option(100, "Next rows per row to link.", ge=1)
    cluster_size: int = option(32, "Rows per cluster.", ge=2)
