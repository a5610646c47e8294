"""What a gate requires, and what it is refused for."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.errors import InputError
from batchplan.gates import Baseline, fail_over, fail_regress, fail_under, judge
from batchplan.quality.metrics import judged, value_of

METRICS = st.sampled_from(sorted(judged()))
NUMBERS = st.floats(-1e6, 1e6)
TOLERANCES = st.floats(0, 1e3)
HIGHER = {
    "loss_train",
    "random_z",
    "gap_reduction",
    "oracle_share",
    "hard_negative_recall.1",
    "hard_negative_recall.10",
    "qap_objective",
    "bottleneck",
    "edge_recall",
    "guard.loss_train",
    "hardness",
    "coverage.rows_seen",
    "coverage.share_seen",
}


def evaluation(metric, value):
    """An evaluation that has one metric."""
    for key in reversed(metric.split(".")):
        value = {key: value}
    return value


def baseline(metric, value):
    return Baseline(num_rows=2, fingerprint="", settings={}, evaluation=evaluation(metric, value))


def verdict(gate, value, before=None):
    """The verdict on one gate, of a metric that was ``before``."""
    old = None if before is None else baseline(gate.metric, before)
    (found,) = judge([gate], evaluation(gate.metric, value), old)
    return found


@given(METRICS, NUMBERS, NUMBERS)
def test_absolute_gates_compare_with_their_value(metric, value, limit):
    assert verdict(fail_under(f"{metric}={limit!r}"), value).passed == (value >= limit)
    assert verdict(fail_over(f"{metric}={limit!r}"), value).passed == (value <= limit)


@given(METRICS, NUMBERS, st.sampled_from(["0", "0%"]))
def test_a_plan_never_regresses_from_itself(metric, value, tolerance):
    assert verdict(fail_regress(f"{metric}={tolerance}"), value, value).passed


@given(METRICS, NUMBERS, TOLERANCES, st.booleans(), st.floats(1e-6, 1e6))
def test_worse_beyond_the_tolerance_fails_and_better_never_does(
    metric, before, tolerance, relative, step
):
    gate = fail_regress(f"{metric}={tolerance!r}{'%' * relative}")
    allowed = tolerance / 100 * abs(before) if relative else tolerance
    up = 1 if metric in HIGHER else -1
    # Beyond what rounding could decide.
    step = max(step, 1e-9 * (abs(before) + allowed))
    assert not verdict(gate, before - up * (allowed + step), before).passed
    assert verdict(gate, before + up * step, before).passed
    inside = before - up * allowed * (1 - 1e-9)
    assert verdict(gate, inside, before).passed or allowed < 1e-6 * abs(before)


def test_the_better_direction_of_every_metric():
    assert {name for name, judged in judged().items() if judged.better == "higher"} == HIGHER
    assert {one.better for one in judged().values()} == {"higher", "lower"}


@pytest.mark.parametrize(
    ("text", "before", "required"),
    [
        ("loss_train=2%", 1.5, 1.47),
        ("loss_train=0.25", 1.5, 1.25),
        ("gap_reduction=50%", -0.5, -0.75),  # of its size: a negative one gets no better
        ("gap=10%", 2.0, 2.2),
        ("guard.broken=0%", 0, 0),
        ("positive_probability=0.01", 0.5, 0.51),
    ],
)
def test_what_a_tolerance_requires(text, before, required):
    found = verdict(fail_regress(text), before, before)
    assert math.isclose(found.required, required)
    assert (found.baseline, found.value, found.passed) == (before, before, True)


def test_a_gate_that_fails_in_a_late_digit_says_so():
    found = verdict(fail_under("gap_reduction=0.4"), 0.39999999)
    assert not found.passed
    assert (found.shown, found.demand) == ("0.39999999", "at least 0.4")


@pytest.mark.parametrize("make", [fail_under, fail_over, fail_regress])
@pytest.mark.parametrize(
    "text",
    [
        "gap_reduction",
        "gap_reduction=",
        "=0.4",
        "",
        "gap_reduction=much",
        "gap_reduction=nan",
        "gap_reduction=inf",
        "gap_reduction=1=2",
        "seconds=1",
        "num_rows=1",
        "loss_random=1",  # no plan can change it
        "similarity_percentiles.99=1",
        "hard_negative_recall=1",
    ],
)
def test_refused_gates(make, text):
    number = "a finite number such as 0.2 or 20%"
    expected = "a tolerance of 0 or more such as 2%" if make is fail_regress else number
    known = text.startswith("gap_reduction")
    part = f"got {text!r}, expected {'gap_reduction' if known else 'METRIC'}=VALUE, {expected}"
    with pytest.raises(InputError, match=re.escape(part)) as caught:
        make(text)
    after = str(caught.value).partition(expected)[2]
    near = "; did you mean ", "; METRIC is one of hardness, false_negatives, "
    assert after.startswith(near) if not known else not after


@pytest.mark.parametrize("text", ["gap=-1", "gap=-0.5%"])
def test_a_tolerance_below_zero_is_refused(text):
    with pytest.raises(InputError, match="a tolerance of 0 or more"):
        fail_regress(text)


@pytest.mark.parametrize("make", [fail_under, fail_over])
def test_percentages_are_shares(make):
    for text, value in (("40%", 0.4), ("0.4", 0.4), ("-2.5%", -0.025), ("300%", 3.0)):
        gate = make(f"gap_reduction={text}")
        assert (gate.required(None), gate.relative) == (value, False)
    with pytest.raises(InputError, match="expected gap_reduction=VALUE"):
        make("gap_reduction=40%%")


def test_a_metric_that_is_misspelt_is_recognised():
    with pytest.raises(InputError, match=r"; did you mean 'gap_reduction'\?$") as caught:
        fail_under("gap_reductoin=40%")
    assert len(str(caught.value)) < 160  # no list hides the name


def test_undefined_metrics_are_not_judged():
    with pytest.raises(InputError, match="random_z is undefined for this plan"):
        judge([fail_under("random_z=0")], {"random_z": None})
    with pytest.raises(InputError, match="random_z is undefined for this plan"):
        judge([fail_under("random_z=0")], {})
    with pytest.raises(InputError, match="the baseline has no random_z"):
        judge([fail_regress("random_z=0")], {"random_z": 1.0}, baseline("random_z", None))
    with pytest.raises(InputError, match="the baseline has no gap"):
        judge([fail_regress("gap=0")], {"gap": 1.0})
    for value in ("0.3", [], 10**400):
        with pytest.raises(InputError, match="the baseline has no gap"):
            verdict(fail_regress("gap=0"), 1.0, value)
        assert verdict(fail_over("gap=1"), 1.0, value).baseline is None


def test_dotted_names():
    assert value_of({"a": {"b": {"c": 3}}}, "a.b.c") == 3
    assert value_of({"a": None}, "a.b") is None
    assert value_of({"a": [1]}, "a.b") is None
