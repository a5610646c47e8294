"""The result of a comparison."""

from dataclasses import asdict, dataclass
from typing import Any

from batchplan.comparison.children import Cost, Failure
from batchplan.comparison.settings import Setting
from batchplan.notebooks import figures, frame, table
from batchplan.quality import Evaluation
from batchplan.quality.guard.limits import limit_in_words
from batchplan.quality.metrics import columns
from batchplan.quality.verdict import Choice, choose, verdict_on
from batchplan.runtime import format_bytes


@dataclass(frozen=True)
class Ranked:
    """A plan with its evaluation and cost.

    Attributes:
        setting: the planner and its options.
        evaluation: its metrics.
        cost: the time and memory that it took.
    """

    setting: Setting
    evaluation: Evaluation
    cost: Cost


@dataclass(frozen=True)
class Comparison:
    """Plans, best first, and the planners that failed.

    Attributes:
        plans: hardest first (see `Evaluation.hardness`), ties by name. One
            guard judges all plans.
        failures: in the order of the settings.
    """

    plans: list[Ranked]
    failures: list[tuple[Setting, Failure]]

    @property
    def choice(self) -> Choice:
        """The plan to train on, and why."""
        names = [plan.setting.name for plan in self.plans]
        limits = [limit_in_words(asdict(plan.setting.options)) for plan in self.plans]
        return choose(names, limits, [plan.evaluation for plan in self.plans])

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values, of which only ``cost`` differs between runs."""
        best, sentence, guard = self.choice
        return {
            "guard": guard,
            "train_on": None if best is None else self.plans[best].setting.name,
            "verdict": sentence,
            "plans": [
                {
                    "rank": rank,
                    **plan.setting.to_dict(),
                    "evaluation": plan.evaluation.to_dict(),
                    "verdict": verdict_on(plan.evaluation).to_dict(),
                    "cost": asdict(plan.cost),
                }
                for rank, plan in enumerate(self.plans, start=1)
            ],
            "failures": [
                {**setting.to_dict(), **asdict(failure)} for setting, failure in self.failures
            ],
        }

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each plan, best first: ``name``, ``planner``,
        ``train`` (whether to train on it), ``seconds``, ``peak_memory_bytes``, and each number of
        `Evaluation.to_dict` under its dotted name. Planners that failed have no row.

        Raises:
            ResourceError: pandas is not installed.
        """
        return frame(
            [
                {
                    "name": plan.setting.name,
                    "planner": plan.setting.planner,
                    "train": verdict_on(plan.evaluation).train,
                    "seconds": plan.cost.seconds,
                    "peak_memory_bytes": plan.cost.peak_memory_bytes,
                    **dict(figures(plan.evaluation.to_dict())),
                }
                for plan in self.plans
            ]
        )

    def table(self) -> list[list[str]]:
        """Return the heads of a table, then a line for each plan, best first, then random batches:
        a line for each set of plans with batches of the same sizes, named by their ranks.
        """
        if not self.plans:
            return []
        measured = [columns(plan.evaluation.to_dict()) for plan in self.plans]
        lines = [["", "planner", *measured[0], "seconds", "memory"]]
        chance: dict[tuple[str, ...], list[str]] = {}
        for place, (plan, cells) in enumerate(zip(self.plans, measured, strict=True), start=1):
            memory = format_bytes(plan.cost.peak_memory_bytes)
            cost = [f"{plan.cost.seconds:.2f}", memory]
            lines.append(
                [str(place), plan.setting.name, *(own for own, _ in cells.values()), *cost]
            )
            chance.setdefault(tuple(random for _, random in cells.values()), []).append(str(place))
        for randoms, ranks in chance.items():
            name = "random batches" if len(chance) == 1 else f"random for {', '.join(ranks)}"
            lines.append(["", name, *randoms])
        return lines

    def _repr_html_(self) -> str:
        """The verdict, the planners that failed, and the table of the plans."""
        failures = [(setting.name, f"failed: {failed.error}") for setting, failed in self.failures]
        heads, *lines = self.table() or [[]]
        return table([("verdict", self.choice.sentence), *failures]) + table(lines, heads)
