"""A gate: a limit on a metric, as written on the command line."""

from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from typing import Literal

from batchplan.errors import OptionError
from batchplan.quality.metrics import METRICS, judged
from batchplan.text import meant

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

    ``20%`` is 0.2. The value of a ``fail-regress`` is a tolerance: ``2%`` of the baseline's value,
    or ``0.01``.

    Raises:
        OptionError: text of another form, a metric that cannot be judged, a value that is not a
            finite number, or a tolerance below 0.
    """
    regress = kind == "fail-regress"
    metric, _, amount = text.partition("=")
    percent = amount.endswith("%")
    try:
        value = float(amount.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = nan
    known = metric in (metrics := judged())
    if not known or not isfinite(value) or (regress and value < 0):
        number = (
            "a tolerance of 0 or more such as 2%"
            if regress
            else "a finite number such as 0.2 or 20%"
        )
        listed = meant(metric, metrics) or f"; METRIC is one of {', '.join(metrics)}"
        raise OptionError(
            f"--{kind}: got {text!r}, expected {metric if known else 'METRIC'}=VALUE, {number}"
            f"{'' if known else listed}"
        )
    return Gate(kind, metric, value, regress and percent, text)


fail_under = partial(parse_gate, "fail-under")
fail_over = partial(parse_gate, "fail-over")
fail_regress = partial(parse_gate, "fail-regress")
