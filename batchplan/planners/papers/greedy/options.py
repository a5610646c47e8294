"""Options of `bcs`, `scb` and `osgd`."""

from dataclasses import dataclass

from batchplan.errors import OptionError
from batchplan.options import option, temperature_option
from batchplan.planners.common.options import PassOptions, PlannerOptions


@dataclass(frozen=True, kw_only=True)
class GreedyOptions(PassOptions, PlannerOptions):
    """Options of `bcs` and `scb`.

    Raises:
        OptionError: a value of another type or out of range.
    """

    random_fraction: float = option(
        0.0, "Share of each batch to fill at random first: at least one row.", ge=0, le=1
    )


@dataclass(frozen=True, kw_only=True)
class OsgdOptions(PlannerOptions):
    """Options of `osgd`.

    Raises:
        OptionError: as `PlannerOptions`; ``keep`` above ``pool``.
    """

    temperature: float = temperature_option()
    pool: int = option(
        8, "Random batches to score at a time; all batches, if there are no more.", ge=1
    )
    keep: int = option(1, "Batches to keep from each pool: those with the highest loss.", ge=1)
    num_batches: int | None = option(
        None, "Number of batches to plan.  [default: N / B, rounded up]", ge=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep > self.pool:
            raise OptionError(
                f"keep: got {self.keep}, expected at most the {self.pool} batches of a pool"
            )

    def makes_partition(self) -> bool:
        return False
