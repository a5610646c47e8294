"""One gate: a metric and what it must reach, as it is written on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from batchplan.errors import InputError
from batchplan.quality.metrics import METRICS, judged


@dataclass(frozen=True)
class Gate:
    """What one metric must reach.

    Attributes:
        kind: ``fail-under`` (at least ``amount``), ``fail-over`` (at most ``amount``) or
            ``fail-regress`` (no worse than the baseline by more than ``amount``).
        metric: a name of `METRICS`.
        amount: in the unit of the metric, or for a relative gate a share of the baseline.
        relative: whether ``amount`` is such a share.
        text: the gate as it was written, ``METRIC=VALUE``.
    """

    kind: Literal["fail-under", "fail-over", "fail-regress"]
    metric: str
    amount: float
    relative: bool
    text: str

    @property
    def name(self) -> str:
        """The option as it was given."""
        return f"--{self.kind} {self.text}"

    @property
    def least(self) -> bool:
        """Whether the metric must be at least, rather than at most, what is required."""
        if self.kind == "fail-regress":
            return METRICS[self.metric].better == "higher"
        return self.kind == "fail-under"

    def required(self, baseline: float | None) -> float:
        """The value that the metric must reach; the baseline is that of a ``fail-regress``."""
        if self.kind != "fail-regress" or baseline is None:
            return self.amount
        tolerance = self.amount * abs(baseline) if self.relative else self.amount
        return baseline - tolerance if self.least else baseline + tolerance


def fail_under(text: str) -> Gate:
    """The gate of ``METRIC=VALUE``: the metric must be at least the value.

    Raises:
        InputError: a text of another form, a metric that cannot be judged, or no finite number.
    """
    metric, amount = _parts("fail-under", text, "a finite number such as 0.4")
    return Gate("fail-under", metric, _number("fail-under", text, amount), False, text)


def fail_over(text: str) -> Gate:
    """The gate of ``METRIC=VALUE``: the metric must be at most the value; raises likewise."""
    metric, amount = _parts("fail-over", text, "a finite number such as 0.4")
    return Gate("fail-over", metric, _number("fail-over", text, amount), False, text)


def fail_regress(text: str) -> Gate:
    """The gate of ``METRIC=TOLERANCE``, such as ``2%`` of the baseline's value or ``0.01``: the
    metric must not be worse than that of the baseline by more.

    Raises:
        InputError: as of `fail_under`, or a tolerance below 0.
    """
    metric, amount = _parts("fail-regress", text, "a tolerance such as 2% or 0.01")
    relative = amount.endswith("%")
    tolerance = _number("fail-regress", text, amount.removesuffix("%"))
    if tolerance < 0:
        raise InputError(f"--fail-regress {text}: got a tolerance of {amount}, expected 0 or more")
    return Gate("fail-regress", metric, tolerance / 100 if relative else tolerance, relative, text)


def parse_gates(under: Iterable[str], over: Iterable[str], regress: Iterable[str]) -> list[Gate]:
    """The gates of all three kinds, as they are written.

    Raises:
        InputError: one that is none, or two of one kind on one metric.
    """
    gates = [*map(fail_under, under), *map(fail_over, over), *map(fail_regress, regress)]
    seen: dict[tuple[str, str], Gate] = {}
    for gate in gates:
        first = seen.setdefault((gate.kind, gate.metric), gate)
        if first is not gate:
            raise InputError(f"{gate.name}: given beside {first.name}; leave one of them out")
    return gates


def require_measured(gates: Iterable[Gate], settings: Mapping[str, Any]) -> None:
    """Require that the settings of an evaluation make it measure what the gates look at.

    Raises:
        InputError: names the options, one of which it takes.
    """
    for gate in gates:
        needs = METRICS[gate.metric].needs
        if needs and all(settings[need] is None for need in needs):
            options = " or ".join(f"--{need.replace('_', '-')}" for need in needs)
            raise InputError(f"{gate.name}: the metric is only measured with {options}; give it")


def _parts(kind: str, text: str, expected: str) -> tuple[str, str]:
    metric, equals, amount = text.partition("=")
    if not (metric and equals and amount):
        raise InputError(f"--{kind} {text!r}: expected METRIC=VALUE, the value being {expected}")
    if metric not in judged():
        raise InputError(
            f"--{kind} {text}: no metric {metric!r} that can be judged, expected one of "
            f"{', '.join(judged())}"
        )
    return metric, amount


def _number(kind: str, text: str, amount: str) -> float:
    try:
        value = float(amount)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        unit = " or a percentage" if kind == "fail-regress" else ""
        raise InputError(f"--{kind} {text}: got {amount!r}, expected a finite number{unit}")
    return value
