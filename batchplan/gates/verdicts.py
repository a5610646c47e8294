"""Whether the gates hold for an evaluation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batchplan.errors import InputError
from batchplan.gates.baseline import Baseline
from batchplan.gates.gate import Gate
from batchplan.quality.metrics import value_of


@dataclass(frozen=True)
class Verdict:
    """What became of one gate.

    Attributes:
        gate: the gate.
        value: the metric of the plan.
        baseline: the metric of the baseline, None where there is no baseline or it has none.
        required: the value that the metric must reach.
    """

    gate: Gate
    value: float
    baseline: float | None
    required: float

    @property
    def passed(self) -> bool:
        """Whether the gate holds; a metric that just reaches what is required does."""
        return self.value >= self.required if self.gate.least else self.value <= self.required

    @property
    def demand(self) -> str:
        """What is required, in words."""
        return f"at {'least' if self.gate.least else 'most'} {self._numbers()[1]}"

    @property
    def shown(self) -> str:
        """The value, in words."""
        return self._numbers()[0]

    def _numbers(self) -> tuple[str, str]:
        # Six digits, unless a gate fails in the seventh.
        short = number(self.value), number(self.required)
        same = short[0] == short[1] and self.value != self.required
        return (repr(self.value), repr(self.required)) if same else short

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            "gate": self.gate.kind,
            "given": self.gate.text,
            "metric": self.gate.metric,
            "value": self.value,
            "baseline": self.baseline,
            "required": self.required,
            "bound": "at least" if self.gate.least else "at most",
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Judgement:
    """What became of all gates of a plan.

    Attributes:
        plan: name of the plan, as a file.
        about: what was measured, in words.
        verdicts: one for each gate, in the order given.
        warnings: what a reader should know before trusting the verdicts.
    """

    plan: str
    about: str
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...] = ()

    @property
    def failures(self) -> int:
        """How many gates do not hold."""
        return sum(not verdict.passed for verdict in self.verdicts)

    @property
    def passed(self) -> bool:
        """Whether all gates hold."""
        return not self.failures

    @property
    def outcome(self) -> str:
        """How many gates hold, in words."""
        gates = len(self.verdicts)
        if not gates:
            return "no gates"
        if self.failures:
            return f"{self.failures} of {gates} gate{'s' * (gates > 1)} failed"
        return "the gate holds" if gates == 1 else f"all {gates} gates hold"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            "plan": self.plan,
            "passed": self.passed,
            "gates": [verdict.to_dict() for verdict in self.verdicts],
            "warnings": list(self.warnings),
        }


def judge(
    gates: Iterable[Gate], evaluation: Mapping[str, Any], baseline: Baseline | None = None
) -> tuple[Verdict, ...]:
    """A verdict on each gate, in their order.

    Args:
        gates: what is required.
        evaluation: `Evaluation.to_dict`.
        baseline: of a comparable evaluation; gates of the kind ``fail-regress`` need one.

    Raises:
        InputError: a metric is undefined for the plan or, where it is needed, in the baseline.
    """
    return tuple(_verdict(gate, evaluation, baseline) for gate in gates)


def number(value: float) -> str:
    """A number as people read it."""
    return f"{value:.6g}"


def _verdict(gate: Gate, evaluation: Mapping[str, Any], baseline: Baseline | None) -> Verdict:
    value = value_of(evaluation, gate.metric)
    if value is None:
        raise InputError(f"{gate.name}: {gate.metric} is undefined for this plan; leave it out")
    before = None if baseline is None else value_of(baseline.evaluation, gate.metric)
    if gate.kind == "fail-regress" and before is None:
        raise InputError(
            f"{gate.name}: the baseline has no {gate.metric}; leave it out, or write a baseline "
            "that has one"
        )
    return Verdict(gate, value, before, gate.required(before))
