"""Options of `scns`."""

from dataclasses import dataclass

from batchplan.errors import InputError
from batchplan.options import option
from batchplan.planners.common.options import TableOptions


@dataclass(frozen=True, kw_only=True)
class ScnsOptions(TableOptions):
    """Options of `scns`.

    Raises:
        InputError: as its bases; more negatives per row than rows to draw from.
    """

    top_k: int = option(100, "Most similar rows to draw from.", ge=1)
    scns_temperature: float = option(0.1, "Temperature of the softmax. Lower is harder.", gt=0)
    per_row: int = option(10, "Negatives per row.", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_row > self.top_k:
            raise InputError(
                f"per row: got {self.per_row} negatives, expected at most top_k, {self.top_k}, "
                "because those of a row are distinct"
            )
