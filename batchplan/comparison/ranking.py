"""The result of a comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from batchplan.comparison.children import Cost, Failure
from batchplan.comparison.settings import Setting
from batchplan.quality import Evaluation


@dataclass(frozen=True)
class Ranked:
    """A plan with its evaluation and cost.

    Attributes:
        setting: what it was made with.
        evaluation: its metrics.
        cost: the time and memory that it took.
        kept: whether an earlier comparison made it.
    """

    setting: Setting
    evaluation: Evaluation
    cost: Cost
    kept: bool

    @property
    def score(self) -> float:
        """The gap reduction, over the allowed pairs if a guard or groups were set."""
        guard = self.evaluation.guard
        return self.evaluation.gap_reduction if guard is None else guard.gap_reduction


@dataclass(frozen=True)
class Comparison:
    """Plans, best first, and the planners that failed.

    Attributes:
        plans: by descending `Ranked.score`, ties by name.
        failures: in the order of the settings.
    """

    plans: list[Ranked]
    failures: list[tuple[Setting, Failure]]

    @property
    def ranked_by(self) -> str:
        """The number that the plans are ranked by, as docs/metrics.md calls it."""
        guarded = any(plan.evaluation.guard is not None for plan in self.plans)
        return "guard.gap_reduction" if guarded else "gap_reduction"

    def with_columns(self, **columns: str | None) -> Comparison:
        """The same, with the column names of ``labels`` and ``group`` in all evaluations."""
        named = [
            replace(plan, evaluation=plan.evaluation.with_columns(**columns)) for plan in self.plans
        ]
        return replace(self, plans=named)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values; only ``cost`` differs between runs."""
        return {
            "ranked_by": self.ranked_by,
            "plans": [
                {
                    "rank": rank,
                    **asdict(plan.setting),
                    "evaluation": plan.evaluation.to_dict(),
                    "cost": {**asdict(plan.cost), "kept": plan.kept},
                }
                for rank, plan in enumerate(self.plans, start=1)
            ],
            "failures": [
                {**asdict(setting), **asdict(failure)} for setting, failure in self.failures
            ],
        }
