"""Swaps between batches that raise the loss and separate rows that must not share a batch."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.refinement.objective import make_objective as make_objective
    from batchplan.refinement.passes import refine_rows as refine_rows
    from batchplan.refinement.plan import improved as improved
    from batchplan.refinement.plan import refine as refine
    from batchplan.refinement.repair import repair_rows as repair_rows

__getattr__, __dir__ = lazily(__name__, __file__)
