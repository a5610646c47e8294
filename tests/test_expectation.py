"""What plans gained in similar trainings, against the stored runs."""

import numpy as np
import pytest

import batchplan
from batchplan.expectation import (
    WORTH,
    Training,
    expectation,
    forecast,
    objection,
    trainings,
)
from batchplan.quality.verdict import verdict_on
from batchplan.training.figures import MEASURED, doubt
from tests.benchmarks.finetune import table as finetuned
from tests.benchmarks.law import table as law
from tests.benchmarks.law import trainings as made


def test_they_are_those_of_the_stored_runs():
    assert made.FILE.read_text() == made.written(made.trainings(law.Grid(), finetuned.runs()))
    assert len({one.data for one in trainings()}) > 5
    assert len({one.model for one in trainings()}) > 2


@pytest.mark.parametrize(
    ("sizes", "shares", "alike"),
    [
        ((2, 128), (0.0, 0.0499), "batches of up to 128 rows and under 5% beaten positives"),
        ((2, 128), (0.05, 1.0), "batches of up to 128 rows and at least 5% beaten positives"),
        ((129, 10**6), (0.0, 1.0), "batches of more than 128 rows"),
    ],
)
def test_trainings_of_the_same_kind_are_told(sizes, shares, alike):
    gains = [
        one.gain
        for one in trainings()
        if sizes[0] <= one.batch_size <= sizes[1] and shares[0] <= one.beaten_positives <= shares[1]
    ]
    for size in sizes:
        for share in shares:
            found = expectation(share, size)
            assert found == (np.median(gains), min(gains), max(gains), len(gains), alike)
            assert str(found).endswith(f" in {len(gains)} trainings of two epochs with {alike})")


def test_a_gain_of_nothing_has_no_sign_of_a_loss():
    one = Training("a", "static", 100, 32, 0.0, -0.04)
    assert str(expectation(0.0, 32, [one])).startswith("+0.0 points of nDCG@10 over shuffled bat")


def test_many_beaten_positives_mean_little_before_the_training():
    assert forecast(0.01, 32) == str(expectation(0.01, 32))
    assert forecast(0.3, 256) == f"do not plan: {expectation(0.3, 256)}"
    said = forecast(0.131, 32).removeprefix(f"do not plan: {expectation(0.131, 32)}")
    assert said.startswith(", if 5% or more of the random negatives still beat the own pair after")
    assert said.endswith("as 13.1% do now")


def test_what_plans_of_large_batches_gained_speaks_against_them():
    """`plan` and `evaluate` say the same of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1024, 16)).astype(np.float32)
    y = x + rng.standard_normal((1024, 16)).astype(np.float32)
    gained = round(float(np.median([one.gain for one in trainings() if one.batch_size > 128])), 1)
    against = (f"although plans with batches of more than 128 rows gained {gained + 0.0:+} "
               "points of nDCG@10")  # fmt: skip
    for size, large in ((128, False), (256, True)):
        plan = batchplan.plan(x, y, batch_size=size)
        said = verdict_on(batchplan.evaluate(plan, x, y)).sentence
        assert said.startswith("train on this one, because ")
        assert (against in said) == large == bool(objection(size))


def test_a_plan_that_others_gained_nothing_from_is_doubted():
    figures = {**dict.fromkeys(MEASURED, 0.0), "gain": 0.5, "false_negatives_random": 0.0}
    said = [
        (doubt({**figures, "beaten_positives": share}, size, 1), expectation(share, size))
        for share, size in ((0.01, 32), (0.3, 32), (0.01, 256))
    ]
    assert [bool(text) for text, _ in said] == [known.median < WORTH for _, known in said]
    assert [bool(text) for text, _ in said] == [False, True, True]
    assert not doubt({**figures, "beaten_positives": 0.3}, 32, 0)  # before any training
    for text, known in said[1:]:
        assert text.endswith(f"plans of such data gained {known}; see docs/law.md")
