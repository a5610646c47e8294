"""Options of `refine`."""

from dataclasses import dataclass

from batchplan.guard.options import GuardOptions
from batchplan.options import option, temperature_option

NEIGHBORS = 16  # per row and side; enough to find batches that should exchange rows


@dataclass(frozen=True, kw_only=True)
class RefineOptions(GuardOptions):
    """Options of `refine`.

    Raises:
        InputError: as `GuardOptions`; a number out of its range.
    """

    passes: int = option(4, "Passes at most; 0 keeps the plan unchanged.", ge=0)
    temperature: float = temperature_option()
    neighbors: int = option(NEIGHBORS, "Nearest neighbours per row.", ge=1)
    source_column: str | None = option(
        None,
        "Column of sources. Each batch keeps its number of rows of each.",
        kind="column",
    )

    def columns(self) -> tuple[str | None, ...]:
        return (*super().columns(), self.source_column)
