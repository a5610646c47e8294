"""Options of `refine`."""

from dataclasses import dataclass

from batchplan.errors import InputError
from batchplan.guard.options import GuardOptions
from batchplan.options import option, temperature_option

NEIGHBORS = 16  # of each row and side: enough to tell which batches have rows to exchange


@dataclass(frozen=True, kw_only=True)
class SwapOptions(GuardOptions):
    """What swaps look at.

    Raises:
        InputError: as `GuardOptions`; learnability without a reference.
    """

    learnability: float = option(
        0.0,
        "Share of the similarities of the --reference that swaps subtract, so that what is hard "
        "for both models does not count.",
        ge=0,
        le=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learnability and not self.reference:
            raise InputError(
                f"learnability: got {self.learnability} without a --reference, whose similarities "
                "it subtracts"
            )

    def check_limited(self, limited: bool) -> None:
        super().check_limited(limited or self.learnability > 0)


@dataclass(frozen=True, kw_only=True)
class RefineOptions(SwapOptions):
    """Options of `refine`.

    Raises:
        InputError: as `SwapOptions`; a number out of its range.
    """

    passes: int = option(4, "Maximum number of passes; 0 keeps the plan unchanged.", ge=0)
    least_gain: float = option(
        0.0, "Stop after a pass that changes the mean loss by less than this, in nats.", ge=0
    )
    seconds: float | None = option(
        None, "Stop after this many seconds. Results then depend on the machine.", gt=0
    )
    temperature: float = temperature_option()
    neighbors: int = option(
        NEIGHBORS, "Nearest neighbours per row, used to find batches worth swapping between.", ge=1
    )
    source_column: str | None = option(
        None,
        "Parquet column of sources. Each batch keeps its number of rows per source.",
        kind="column",
    )

    def columns(self) -> tuple[str | None, ...]:
        return (*super().columns(), self.source_column)
