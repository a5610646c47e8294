"""How rows are cut into batches, and which batches are trained on at the same time."""

from dataclasses import KW_ONLY, MISSING, dataclass

from batchplan.options import BatchOrder, Scope, Tail, option
from batchplan.plans.facts import settle


@dataclass(frozen=True)
class Batching:
    """How rows are cut into batches.

    Attributes:
        batch_size: rows of a full batch, which are contrasted together; at least 2.
        tail: what to do with the rows that do not fill a step: ``keep`` makes short batches of
            them, as equal as possible; ``drop`` leaves them out; ``pad`` fills the step with the
            rows just before them in the order.
        batch_order: ``planned``, or ``shuffled``, which shuffles the batches but not the rows in
            each; a short or padded step stays last.
        scope: ``device``: a step is W batches; in step t, device r trains on batch t W + r.
            ``global``: a step is one batch, which all devices share in contiguous, equal parts.
        world_size: number of devices, W, that train on the plan.

    Raises:
        InputError: a value of another type or out of its range.
    """

    batch_size: int = option(MISSING, "Rows of a full batch.", ge=2)
    _: KW_ONLY
    tail: Tail = "keep"
    batch_order: BatchOrder = "planned"
    scope: Scope = "device"
    world_size: int = option(1, "Number of devices.", ge=1)

    def __post_init__(self) -> None:
        settle(self)
