"""How rows are cut into batches, and which batches are trained on at the same time."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from batchplan.plans.facts import choice, integer, settle

SCOPES = ("device", "global")
TAILS = ("keep", "drop", "pad")
BATCH_ORDERS = ("planned", "shuffled")


@dataclass(frozen=True)
class Batching:
    """How rows are cut into batches.

    Attributes:
        batch_size: rows of a full batch, those contrasted together; at least 2.
        tail: what becomes of the rows that do not fill a step: ``keep`` makes short batches of
            them, as equal as can be; ``drop`` leaves them out; ``pad`` fills the step with the
            rows that come just before them in the order.
        batch_order: ``planned``, or ``shuffled``: the batches are shuffled, the rows within each
            keep their order, and a short or padded step stays the last.
        scope: ``device``: a step is W batches, of which device r trains on batch t W + r in step
            t. ``global``: a step is one batch, which all devices share in contiguous, equal parts.
        world_size: number of devices, W, that train on the plan.

    Raises:
        InputError: a value of another type or out of its range.
    """

    batch_size: int = integer(2)
    _: KW_ONLY
    tail: str = choice(TAILS, default="keep")
    batch_order: str = choice(BATCH_ORDERS, default="planned")
    scope: str = choice(SCOPES, default="device")
    world_size: int = integer(1, default=1)

    def __post_init__(self) -> None:
        settle(self)
