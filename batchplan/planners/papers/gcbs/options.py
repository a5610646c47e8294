"""Options of `gcbs`."""

from dataclasses import dataclass

from batchplan.guard.options import GuardOptions
from batchplan.options import option
from batchplan.planners.common.options import PassOptions, PlannerOptions


@dataclass(frozen=True, kw_only=True)
class GcbsOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `gcbs`.

    Raises:
        InputError: as its bases; a quantile outside (0, 1), or neighbors below 1.
    """

    quantile: float = option(
        0.999,
        "Keep the largest similarities as edges of the graph: 0.999 keeps one in a thousand.",
        gt=0,
        lt=1,
    )
    neighbors: int | None = option(None, "Mean edges per row, instead of a quantile.", ge=1)
    reverse: bool = option(True, "Use reverse instead of plain Cuthill-McKee.")
