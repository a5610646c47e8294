"""Shared by planners: options, drafts, the last steps of a plan, and batches of anchors."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.planners.common.anchors import anchor_batches as anchor_batches
    from batchplan.planners.common.anchors import check_batch as check_batch
    from batchplan.planners.common.anchors import require_enough as require_enough

__getattr__, __dir__ = lazily(__name__, __file__)
