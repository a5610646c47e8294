"""Options of `refine`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from batchplan.errors import InputError
from batchplan.guard.options import GuardOptions
from batchplan.options import check_temperature, option

NEIGHBORS = 16  # of each row and side: enough to tell which batches have rows to exchange


@dataclass(frozen=True, kw_only=True)
class RefineOptions(GuardOptions):
    """Options of `refine`.

    Raises:
        InputError: as `GuardOptions`; a number out of its range.
    """

    passes: int = option(4, "Passes at most; 0 leaves the plan as it is.")
    least_gain: float = option(0.0, "Stop after a pass that changes the mean loss by less nats.")
    seconds: float | None = option(
        None, "Stop after so long; how far it gets then depends on the machine."
    )
    temperature: float = option(0.05, "tau of the NT-Xent loss.")
    neighbors: int = option(
        NEIGHBORS, "Nearest neighbours of a row that tell which batches have rows to exchange."
    )
    source_column: str | None = option(
        None,
        "Parquet column of sources: batches keep as many rows of each as they have.",
        kind="column",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        if self.passes < 0:
            raise InputError(f"passes: got {self.passes}, expected 0 or more")
        if self.neighbors < 1:
            raise InputError(f"neighbors: got {self.neighbors}, expected at least 1")
        if not 0 <= self.least_gain < inf:
            raise InputError(f"least gain: got {self.least_gain}, expected 0 nats or more")
        if self.seconds is not None and not 0 < self.seconds < inf:
            raise InputError(f"seconds: got {self.seconds}, expected more than 0")

    def columns(self) -> tuple[str | None, ...]:
        return (*super().columns(), self.source_column)
