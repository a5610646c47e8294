"""Plans: which rows share a batch, in which order; their file formats and how they are saved."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.plans.batching import Batching as Batching
    from batchplan.plans.concatenation import concat as concat
    from batchplan.plans.metadata import PlanMetadata as PlanMetadata
    from batchplan.plans.negatives import Negatives as Negatives
    from batchplan.plans.output import check_output as check_output
    from batchplan.plans.output import is_plan as is_plan
    from batchplan.plans.plan import Plan as Plan

__getattr__, __dir__ = lazily(__name__, __file__)
