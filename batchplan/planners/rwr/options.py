"""Options of `rwr`."""

from dataclasses import dataclass
from typing import Literal

from batchplan.guard.options import GuardOptions
from batchplan.options import option
from batchplan.planners.common.options import PassOptions, PlannerOptions


@dataclass(frozen=True, kw_only=True)
class RwrOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `rwr`.

    Raises:
        InputError: as its bases; a number out of its range.
    """

    candidate_rows: int = option(
        1000, "Random rows (M) to search for neighbours; at most N - 1.", ge=1
    )
    neighbors: int = option(100, "Most similar of these (K) that become neighbours.", ge=1)
    walk: Literal["rwr", "rw", "bfs"] = option(
        "rwr", "Random walk with restart, without, or breadth first."
    )
    restart: float = option(
        0.2,
        "Probability that rwr returns to the first row of the batch before a move.",
        ge=0,
        le=1,
    )
    coverage: Literal["partition", "independent"] = option(
        "partition", "Every row once, or independent batches."
    )

    def makes_partition(self) -> bool:
        return self.coverage == "partition"
