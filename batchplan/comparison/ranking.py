"""The result of a comparison."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from batchplan.comparison.children import Cost, Failure
from batchplan.comparison.settings import Setting
from batchplan.quality import Evaluation


@dataclass(frozen=True)
class Ranked:
    """A plan in its place.

    Attributes:
        setting: what it was made with.
        evaluation: how good it is.
        cost: what it took.
        kept: whether an earlier comparison made it.
    """

    setting: Setting
    evaluation: Evaluation
    cost: Cost
    kept: bool

    @property
    def score(self) -> float:
        """The gap reduction; over the pairs that are allowed, if a guard or groups were given."""
        guard = self.evaluation.guard
        return self.evaluation.gap_reduction if guard is None else guard.gap_reduction


@dataclass(frozen=True)
class Comparison:
    """Plans, the best one first, and the planners that made none.

    Attributes:
        plans: by falling `Ranked.score`, by name where that is equal.
        failures: in the order of the settings.
    """

    plans: list[Ranked]
    failures: list[tuple[Setting, Failure]]

    @property
    def ranked_by(self) -> str:
        """The number that the plans are ranked by, as docs/metrics.md calls it."""
        guarded = any(one.evaluation.guard is not None for one in self.plans)
        return "guard.gap_reduction" if guarded else "gap_reduction"

    def with_columns(self, **columns: str | None) -> Comparison:
        """The same with the names of the columns of ``labels`` and ``group`` in all evaluations."""
        named = [
            replace(one, evaluation=one.evaluation.with_columns(**columns)) for one in self.plans
        ]
        return replace(self, plans=named)

    def to_dict(self) -> dict[str, Any]:
        """All as plain JSON values; what differs between runs is under ``cost``."""
        return {
            "ranked_by": self.ranked_by,
            "plans": [
                {
                    "rank": rank,
                    **asdict(one.setting),
                    "evaluation": one.evaluation.to_dict(),
                    "cost": {**asdict(one.cost), "kept": one.kept},
                }
                for rank, one in enumerate(self.plans, start=1)
            ],
            "failures": [
                {**asdict(setting), **asdict(failure)} for setting, failure in self.failures
            ],
        }
