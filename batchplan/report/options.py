"""The options of a plan that are not the defaults of its planner."""

from collections.abc import Iterator
from typing import Any

from batchplan.options import LIMITS, recorded
from batchplan.planners import PLANNERS
from batchplan.plans.metadata import PlanMetadata
from batchplan.refinement.options import RefineOptions


def changed_options(metadata: PlanMetadata) -> Iterator[tuple[str, Any]]:
    """The name and value of each; all that are set, for a planner that is not known."""
    for name, value in metadata.options.items():
        off = name in LIMITS and metadata.options.get("guard") is False
        if value != _usual(metadata.planner).get(name) and not off:
            yield name.replace("_", " "), value


def _usual(planner: str) -> dict[str, Any]:
    if planner == "refine":
        return recorded(RefineOptions())
    return recorded(PLANNERS[planner].options()) if planner in PLANNERS else {}
