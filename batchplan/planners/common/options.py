"""What every planner is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from batchplan.errors import InputError
from batchplan.options import SimilarityOptions, option

Tail = Literal["keep", "drop", "pad"]
BatchOrder = Literal["planned", "shuffled"]
Scope = Literal["device", "global"]


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(SimilarityOptions):
    """The options all planners share; a planner adds its own in a subclass.

    Raises:
        InputError: as `SimilarityOptions`; a batch size below 2, or fewer than one device.
    """

    batch_size: int = option(64, "Rows in a batch, on each device.", "--batch-size", "-b")
    tail: Tail = option(
        "keep",
        "What becomes of the last rows, that fill no batch, or no step of all devices: short "
        "batches (keep), left out (drop), or full ones with the rows that come just before (pad).",
    )
    batch_order: BatchOrder = option(
        "planned", "Order of the batches; shuffled keeps each batch's rows together."
    )
    world_size: int = option(1, "Devices that train on the plan, each with its part of every step.")
    scope: Scope = option(
        "device",
        "What is contrasted together: the rows of one device, or those of all devices (global), "
        "world size times as many.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 2:
            raise InputError(f"batch size: got {self.batch_size}, expected at least 2 rows")
        if self.world_size < 1:
            raise InputError(f"world size: got {self.world_size}, expected at least 1 device")

    def makes_partition(self) -> bool:
        """Whether an order of all rows is cut, so that the rows left for a last step are known
        before the planning; a planner that makes samples or tables overrides it."""
        return True

    @property
    def rows_per_batch(self) -> int:
        """Rows that are contrasted together: what a planner makes batches of."""
        return self.batch_size * (self.world_size if self.scope == "global" else 1)
