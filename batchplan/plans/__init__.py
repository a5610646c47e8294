"""The plan: which rows share a batch, and in which order; its file formats and how it is saved."""

from batchplan.plans.metadata import BATCH_ORDERS, SCOPES, TAILS, PlanMetadata
from batchplan.plans.output import check_output, is_plan
from batchplan.plans.plan import Plan

__all__ = [
    "BATCH_ORDERS",
    "SCOPES",
    "TAILS",
    "Plan",
    "PlanMetadata",
    "check_output",
    "is_plan",
]
