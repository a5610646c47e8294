"""The options that planners share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchplan import plans
from batchplan.guard.options import GroupOptions
from batchplan.options import (
    BatchOrder,
    Scope,
    SimilarityOptions,
    Tail,
    option,
    temperature_option,
)


def shuffled_order() -> Any:
    """Return the option ``batch_order`` of planners that shuffle batches by default."""
    return option("shuffled", "Order of the batches. Each batch keeps its rows.")


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(SimilarityOptions):
    """The options of every planner; a subclass adds the options of one planner.

    Raises:
        InputError: a value of another type or out of range.
    """

    batch_size: int = option(64, "Rows per batch and device.", "--batch-size", "-b", ge=2)
    tail: Tail = option(
        "keep",
        "Last rows that fill no batch: keep them as a short batch, drop them, or pad the "
        "batch with the rows before them.",
    )
    batch_order: BatchOrder = option("planned", "Order of the batches. Each batch keeps its rows.")
    world_size: int = option(1, "Number of devices that train on the plan.", ge=1)
    scope: Scope = option(
        "device",
        "Rows that are each other's negatives: the rows of one device, or of all (global).",
    )

    def makes_partition(self) -> bool:
        """Return whether the plan has each row once. Then the size of the last step is known before
        planning. Options of planners that make samples or tables override this."""
        return True

    def makes_table(self) -> bool:
        """Return whether the planner makes a table of negatives instead of a plan."""
        return False

    def at_epoch(self, epoch: int, epochs: int | None) -> dict[str, Any]:
        """Return the options that follow the epochs of a training, as they are in one of them.

        Args:
            epoch: from 0.
            epochs: number of epochs of the training; None if it is not known.

        Raises:
            InputError: the options depend on the number of epochs, which is not known.
        """
        return {}

    def batching(self) -> plans.Batching:
        """Return how the rows are cut into batches."""
        return plans.Batching(
            self.rows_per_batch,
            tail=self.tail,
            batch_order=self.batch_order,
            scope=self.scope,
            world_size=self.world_size,
        )

    @property
    def rows_per_batch(self) -> int:
        """Rows that are each other's negatives: the batch size that planners work with."""
        return self.batch_size * (self.world_size if self.scope == "global" else 1)


@dataclass(frozen=True, kw_only=True)
class TableOptions(GroupOptions, PlannerOptions):
    """The options of planners that make a table of negatives.

    Raises:
        InputError: as its bases.
    """

    as_batches: bool = option(
        False, "Write a plan instead of a table: batches of anchors and their negatives."
    )

    def makes_partition(self) -> bool:
        return False

    def makes_table(self) -> bool:
        return not self.as_batches


@dataclass(frozen=True, kw_only=True)
class PlainOptions(GroupOptions, PlannerOptions):
    """The options of `batchplan plan`: facts about the training and the rows that only users know.

    Raises:
        InputError: as its bases.
    """

    batch_order: BatchOrder = shuffled_order()
    temperature: float = temperature_option()


@dataclass(frozen=True, kw_only=True)
class PassOptions(SimilarityOptions):
    """The options of planners whose batches can be refined.

    Raises:
        InputError: a value of another type or out of range.
    """

    refine: int = option(0, "Passes of swaps between batches; each raises the training loss.", ge=0)
    temperature: float = temperature_option()
