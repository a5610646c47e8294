"""`judge`: decide whether an evaluation meets the gates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import hypot
from typing import Any, Literal

from batchplan.errors import InputError
from batchplan.gates.baseline import Baseline
from batchplan.gates.gate import Gate
from batchplan.quality.metrics import error_of, value_of

CLEAR = 2  # an estimate decides a gate if it is this many standard errors from the limit


@dataclass(frozen=True)
class Verdict:
    """The result of a gate.

    Attributes:
        gate: the gate.
        value: the metric of the plan.
        baseline: the metric of the baseline, None without one.
        required: the limit.
        standard_error: of the value.
        required_error: standard error of the limit, if the baseline is an estimate.
    """

    gate: Gate
    value: float
    baseline: float | None
    required: float
    standard_error: float = 0.0
    required_error: float = 0.0

    @property
    def outcome(self) -> Literal["ok", "undecided", "FAILED"]:
        """Whether the gate holds.

        A value equal to the limit meets it. An estimate within `CLEAR` standard errors of the limit
        is undecided.
        """
        doubt = CLEAR * hypot(self.standard_error, self.required_error)
        if doubt and abs(self.value - self.required) < doubt:
            return "undecided"
        above = self.value >= self.required
        below = self.value <= self.required
        return "ok" if (above if self.gate.least else below) else "FAILED"

    @property
    def passed(self) -> bool | None:
        """Whether the gate holds; None if it is undecided."""
        return None if self.outcome == "undecided" else self.outcome == "ok"

    @property
    def demand(self) -> str:
        """The limit in words."""
        limit = f"{self._numbers()[1]}{_plus_minus(self.required_error)}"
        return f"at {'least' if self.gate.least else 'most'} {limit}"

    @property
    def shown(self) -> str:
        """The value as text."""
        return f"{self._numbers()[0]}{_plus_minus(self.standard_error)}"

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
            "required_error": self.required_error,
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
        strict: whether an undecided gate counts as failed.
    """

    plan: str
    about: str
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...] = ()
    strict: bool = False

    @property
    def failures(self) -> int:
        """The number of gates that do not hold."""
        return sum(verdict.outcome == "FAILED" for verdict in self.verdicts)

    @property
    def undecided(self) -> int:
        """The number of undecided gates."""
        return sum(verdict.outcome == "undecided" for verdict in self.verdicts)

    @property
    def passed(self) -> bool:
        """Whether no gate failed; with ``strict``, also whether none is undecided."""
        return not self.failures and not (self.strict and self.undecided)

    @property
    def outcome(self) -> str:
        """The result in words."""
        gates = len(self.verdicts)
        if not gates:
            return "no gates"
        of_all = f"of {gates} gate{'s' * (gates > 1)}"
        open_ = f"{self.undecided} {'undecided' if self.failures else f'{of_all} undecided'}"
        failed = f"{self.failures} {of_all} failed"
        if self.failures:
            return f"{failed}, {open_}" if self.undecided else failed
        if self.undecided:
            return f"{open_}; a larger --sample may decide"
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
) -> tuple[Verdict, ...]:
    """Return the verdict on each gate, in their order.

    Args:
        gates: the limits.
        evaluation: `Evaluation.to_dict`.
        baseline: of a comparable evaluation, which gates of the kind ``fail-regress`` need.

    Raises:
        InputError: a metric is undefined for the plan, or is needed but undefined in the baseline.
    """
    return tuple(_verdict(gate, evaluation, baseline) for gate in gates)


def _plus_minus(error: float) -> str:
    return f" \N{PLUS-MINUS SIGN} {error:.2g}" if error else ""


def number(value: float) -> str:
    """Return a number with six digits."""
    return f"{value:.6g}"


def _verdict(gate: Gate, evaluation: Mapping[str, Any], baseline: Baseline | None) -> Verdict:
    value = value_of(evaluation, gate.metric)
    if value is None:
        raise InputError(f"{gate.name}: {gate.metric} is undefined for this plan; leave it out")
    before = None if baseline is None else value_of(baseline.evaluation, gate.metric)
    if gate.kind == "fail-regress" and before is None:
        raise InputError(
            f"{gate.name}: the baseline has no {gate.metric}; leave it out, or write a baseline "
            "that has it"
        )
    error = error_of(evaluation, gate.metric)
    doubt = 0.0
    if gate.kind == "fail-regress" and baseline is not None:
        doubt = error_of(baseline.evaluation, gate.metric)
        if gate.relative:  # the tolerance is a share of the baseline, so it has an error too
            doubt *= abs(gate.required(before) / before) if before else 1 + gate.amount
    return Verdict(gate, value, before, gate.required(before), error, doubt)
