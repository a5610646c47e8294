"""`judge`: decide whether an evaluation meets the gates."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batchplan.errors import InputError
from batchplan.gates.baseline import Baseline
from batchplan.gates.gate import Gate
from batchplan.quality.metrics import error_of, value_of


@dataclass(frozen=True)
class Outcome:
    """The result of a gate.

    Attributes:
        gate: the gate.
        value: the metric of the plan.
        baseline: the metric of the baseline, None without one.
        required: the limit.
        standard_error: of the value, which is judged as it is.
    """

    gate: Gate
    value: float
    baseline: float | None
    required: float
    standard_error: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the gate holds. A value equal to the limit meets it."""
        above, below = self.value >= self.required, self.value <= self.required
        return above if self.gate.least else below

    @property
    def demand(self) -> str:
        """The limit in words."""
        return f"at {'least' if self.gate.least else 'most'} {self._numbers()[1]}"

    @property
    def shown(self) -> str:
        """The value as text."""
        error = f" \N{PLUS-MINUS SIGN} {self.standard_error:.2g}" if self.standard_error else ""
        return f"{self._numbers()[0]}{error}"

    def _numbers(self) -> tuple[str, str]:
        """The value and the limit, with all digits if six do not show the difference."""
        short = number(self.value), number(self.required)
        same = short[0] == short[1] and self.value != self.required
        return (repr(self.value), repr(self.required)) if same else short

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "gate": self.gate.kind,
            "given": self.gate.text,
            "metric": self.gate.metric,
            "value": self.value,
            "standard_error": self.standard_error,
            "baseline": self.baseline,
            "required": self.required,
            "bound": "at least" if self.gate.least else "at most",
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Judgement:
    """The results of all gates of a plan.

    Attributes:
        plan: name of the plan.
        about: what was measured, in words.
        verdicts: one per gate, in their order.
        warnings: reasons to doubt the verdicts.
    """

    plan: str
    about: str
    verdicts: tuple[Outcome, ...]
    warnings: tuple[str, ...] = ()

    @property
    def failures(self) -> int:
        """The number of gates that do not hold."""
        return sum(not verdict.passed for verdict in self.verdicts)

    @property
    def passed(self) -> bool:
        """Whether no gate failed."""
        return not self.failures

    @property
    def outcome(self) -> str:
        """The result in words."""
        gates = len(self.verdicts)
        if not gates:
            return "no gates"
        if self.failures:
            return f"{self.failures} of {gates} gate{'s' * (gates > 1)} failed"
        return "the gate holds" if gates == 1 else f"all {gates} gates hold"

    def to_dict(self) -> dict[str, Any]:
        """The judgement as JSON values."""
        return {
            "plan": self.plan,
            "passed": self.passed,
            "gates": [verdict.to_dict() for verdict in self.verdicts],
            "warnings": list(self.warnings),
        }


def judge(
    gates: Iterable[Gate], evaluation: Mapping[str, Any], baseline: Baseline | None = None
) -> tuple[Outcome, ...]:
    """Return the verdict on each gate, in their order.

    Args:
        gates: the limits.
        evaluation: `Evaluation.to_dict`.
        baseline: of a comparable evaluation, which gates of the kind ``fail-regress`` need.

    Raises:
        InputError: a metric is undefined for the plan, or is needed but undefined in the baseline.
    """
    return tuple(_verdict(gate, evaluation, baseline) for gate in gates)


def number(value: float) -> str:
    """Return a number with six digits."""
    return f"{value:.6g}"


def _verdict(gate: Gate, evaluation: Mapping[str, Any], baseline: Baseline | None) -> Outcome:
    value = value_of(evaluation, gate.metric)
    if value is None:
        raise InputError(
            f"{gate.name}: {gate.metric} is undefined for this plan; leave it out "
            "(docs/metrics.md says which option it needs)"
        )
    before = None if baseline is None else value_of(baseline.evaluation, gate.metric)
    if not isinstance(before, int | float) or abs(before) > sys.float_info.max:
        before = None  # nothing has checked the numbers in the file
    if gate.kind == "fail-regress" and before is None:
        raise InputError(
            f"{gate.name}: the baseline has no {gate.metric}; leave it out, or write a baseline "
            "that has it"
        )
    return Outcome(gate, value, before, gate.required(before), error_of(evaluation, gate.metric))
