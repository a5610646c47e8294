"""Options of `chain`."""

from dataclasses import dataclass

from batchplan.errors import OptionError
from batchplan.guard.options import GuardOptions
from batchplan.options import BatchOrder, option
from batchplan.planners.common.options import PassOptions, PlannerOptions, shuffled_order

SPACE_ROWS = 1920  # the setting of GRIT: 15 batches of 128 rows
_BATCHES = 15


@dataclass(frozen=True, kw_only=True)
class ChainOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `chain`.

    Raises:
        OptionError: as its bases; a number out of its range, or spaces smaller than a batch.
    """

    batch_order: BatchOrder = shuffled_order()
    space_rows: int | None = option(
        None,
        f"Rows of a search space at most.  [default: {SPACE_ROWS:,}, or {_BATCHES} batches if "
        "more]",
        ge=2,
    )
    hardness: float = option(
        1.0,
        "Quantile of the similarities that the next row has: 1 is the most similar row "
        "(GRIT), less is milder (FALCON).",
        ge=0,
        le=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space_rows is not None and self.space_rows < self.rows_per_batch:
            raise OptionError(
                f"space rows: got {self.space_rows}, expected at least the {self.rows_per_batch} "
                "rows of a batch; use larger spaces, or smaller batches"
            )

    def batches_of_space(self) -> int:
        """Return the largest number of batches of a space."""
        rows = self.space_rows or max(SPACE_ROWS, _BATCHES * self.rows_per_batch)
        return rows // self.rows_per_batch
