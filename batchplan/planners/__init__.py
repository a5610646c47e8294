"""Embeddings -> Plan: the planners."""

from typing import TYPE_CHECKING

from batchplan.lazy import lazily

if TYPE_CHECKING:
    from batchplan.planners.planning import mine_negatives as mine_negatives
    from batchplan.planners.planning import plan as plan
    from batchplan.planners.planning import run_planner as run_planner
    from batchplan.planners.table import PLANNERS as PLANNERS
    from batchplan.planners.table import Planner as Planner

__getattr__, __dir__ = lazily(__name__, __file__)
