"""Options of `partition`."""

from dataclasses import dataclass
from typing import Literal

from batchplan.errors import OptionError
from batchplan.guard.options import GuardOptions, margin_option
from batchplan.options import USUAL_MARGIN, BatchOrder, option
from batchplan.planners.common.options import PassOptions, PlannerOptions, shuffled_order
from batchplan.refinement.options import NEIGHBORS

MEGA_BATCHES = 2  # docs/law.md compares other numbers on six data sets
MEGA_BATCH_ROWS = 65_536  # beyond this, the time per row grows faster than the hardness of batches


@dataclass(frozen=True, kw_only=True)
class PartitionOptions(GuardOptions, PassOptions, PlannerOptions):
    """Options of `partition`.

    Raises:
        OptionError: as its bases; a number out of its range, or options that exclude each other.
    """

    batch_order: BatchOrder = shuffled_order()
    relative_margin: float | None = margin_option(USUAL_MARGIN)
    guard_penalty: float | None = option(
        0.2,
        "Loss, in nats, to give up for each too similar pair that is separated.",
        ge=0,
        finite=False,
    )
    refine: int = option(1, "Passes of swaps between batches; each raises the training loss.", ge=0)
    neighbors: int = option(NEIGHBORS, "Nearest neighbours per row.", ge=1)
    mega_batches: int | Literal["auto"] | None = option(
        None,
        "Number of parts of the rows that are planned separately. More parts make batches milder "
        "and planning faster. auto chooses as batchplan plan does.  [default: 2 or more, see "
        "--mega-batch-rows]",
        ge=1,
    )
    mega_batch_rows: int | None = option(
        None,
        "Largest number of rows of a part, instead of --mega-batches.  [default: "
        f"{MEGA_BATCH_ROWS:,}]",
        ge=2,
    )
    resume: str | None = option(
        None,
        "Folder for finished parts. After an interruption, the same command goes on from them.",
        kind="path",
        metavar="FOLDER",
        recorded=False,
    )
    source_column: str | None = option(None, "Column of sources, such as data sets.", kind="column")
    source_mix: Literal["one", "proportional"] = option(
        "one", "Rows of a batch: from one source, or a proportional share of each."
    )
    ray: str | None = option(
        None,
        "Plan the parts on Ray on this machine, or on a cluster: auto, or the address of its head.",
        metavar="[ADDRESS]",
        recorded=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.mega_batches, int) and self.mega_batch_rows is not None:
            raise OptionError(
                f"mega-batches: got {self.mega_batches} with --mega-batch-rows "
                f"{self.mega_batch_rows}; leave out one of the two"
            )
        if self.source_mix != "one" and self.source_column is None:
            raise OptionError(
                f"source mix: got {self.source_mix} without --source-column; name one"
            )

    def count_for(self, num_rows: int) -> int:
        """How many mega-batches ``num_rows`` rows are dealt to."""
        if isinstance(self.mega_batches, int):
            return self.mega_batches
        if self.mega_batch_rows is not None:
            return -(-num_rows // self.mega_batch_rows)
        return max(MEGA_BATCHES, -(-num_rows // MEGA_BATCH_ROWS))

    def columns(self) -> tuple[str | None, ...]:
        return (*super().columns(), self.source_column)
