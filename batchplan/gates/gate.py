"""A gate: a limit on a metric, as written on the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from typing import Any, Literal

from batchplan.errors import InputError
from batchplan.quality.metrics import METRICS, judged

Kind = Literal["fail-under", "fail-over", "fail-regress"]


@dataclass(frozen=True)
class Gate:
    """A limit on a metric.

    Attributes:
        kind: ``fail-under`` (at least ``amount``), ``fail-over`` (at most ``amount``) or
            ``fail-regress`` (no worse than the baseline by more than ``amount``).
        metric: a name of `METRICS`.
        amount: in the unit of the metric; for a relative gate, a share of the baseline.
        relative: whether ``amount`` is a share of the baseline.
        text: the gate as written, ``METRIC=VALUE``.
    """

    kind: Kind
    metric: str
    amount: float
    relative: bool
    text: str

    @property
    def name(self) -> str:
        """The gate as an option of the command line."""
        return f"--{self.kind} {self.text}"

    @property
    def least(self) -> bool:
        """Whether the limit is a lower limit."""
        if self.kind == "fail-regress":
            return METRICS[self.metric].better == "higher"
        return self.kind == "fail-under"

    def required(self, baseline: float | None) -> float:
        """Return the limit. ``baseline`` is the metric of the baseline, for ``fail-regress``."""
        if self.kind != "fail-regress" or baseline is None:
            return self.amount
        tolerance = self.amount * abs(baseline) if self.relative else self.amount
        return baseline - tolerance if self.least else baseline + tolerance


def parse_gate(kind: Kind, text: str) -> Gate:
    """Return the gate that ``METRIC=VALUE`` describes.

    The value of a ``fail-regress`` is a tolerance: ``2%`` of the baseline's value, or ``0.01``.

    Raises:
        InputError: text of another form, a metric that cannot be judged, a value that is not a
            finite number, or a tolerance below 0.
    """
    regress = kind == "fail-regress"
    metric, equals, amount = text.partition("=")
    if not (metric and equals and amount):
        expected = "a tolerance such as 2% or 0.01" if regress else "a finite number such as 0.4"
        raise InputError(f"--{kind} {text!r}: expected METRIC=VALUE, with {expected} as the value")
    if metric not in judged():
        raise InputError(
            f"--{kind} {text}: no metric {metric!r} that can be judged, expected one of "
            f"{', '.join(judged())}"
        )
    relative = regress and amount.endswith("%")
    try:
        value = float(amount.removesuffix("%") if regress else amount)
    except ValueError:
        value = nan
    if not isfinite(value):
        unit = " or a percentage" * regress
        raise InputError(f"--{kind} {text}: got {amount!r}, expected a finite number{unit}")
    if regress and value < 0:
        raise InputError(f"--{kind} {text}: got a tolerance of {amount}, expected 0 or more")
    return Gate(kind, metric, value / 100 if relative else value, relative, text)


fail_under = partial(parse_gate, "fail-under")
fail_over = partial(parse_gate, "fail-over")
fail_regress = partial(parse_gate, "fail-regress")


def parse_gates(under: Iterable[str], over: Iterable[str], regress: Iterable[str]) -> list[Gate]:
    """Return the gates of all three kinds.

    Raises:
        InputError: as `parse_gate`, or two gates of one kind on one metric.
    """
    gates = [*map(fail_under, under), *map(fail_over, over), *map(fail_regress, regress)]
    seen: dict[tuple[str, str], Gate] = {}
    for gate in gates:
        first = seen.setdefault((gate.kind, gate.metric), gate)
        if first is not gate:
            raise InputError(f"{gate.name}: conflicts with {first.name}; leave out one of the two")
    return gates


def require_measured(gates: Iterable[Gate], settings: Mapping[str, Any]) -> None:
    """Require that an evaluation with these settings measures the metrics of the gates.

    Raises:
        InputError: names the options one of which is needed.
    """
    for gate in gates:
        needs = METRICS[gate.metric].needs
        if needs and all(settings[need] is None or settings[need] is False for need in needs):
            options = " or ".join(f"--{need.replace('_', '-')}" for need in needs)
            raise InputError(f"{gate.name}: the metric is only measured with {options}; add it")
