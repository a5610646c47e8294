"""What plans gained in similar trainings, against a search by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.expectation import MOST_SIMILAR, WORTH, expectation, trainings
from batchplan.training.figures import MEASURED, doubt
from tests.benchmarks.finetune import table as finetuned
from tests.benchmarks.law import table as law
from tests.benchmarks.law import trainings as made


def test_they_are_those_of_the_stored_runs():
    assert made.FILE.read_text() == made.written(made.trainings(law.Grid(), finetuned.runs()))
    assert len({one.data for one in trainings()}) > 5
    assert len({one.model for one in trainings()}) > 2


@given(st.integers(1, 10**9), st.integers(2, 10**6), st.floats(0, 1))
def test_the_nearest_are_told(rows, batch_size, beaten):
    share = np.clip(beaten, 1e-4, 1 - 1e-4)
    known = trainings()
    n, sizes, shares, gains = (
        np.array([getattr(one, name) for one in known])
        for name in ("rows", "batch_size", "beaten_positives", "gain")
    )
    logit = np.log(shares / (1 - shares))
    distance = (
        abs(np.log2(n / rows))
        + abs(np.log2(sizes / batch_size))
        + abs(logit - np.log(share / (1 - share)))
    )
    got = expectation(rows, batch_size, beaten)
    assert got[3:] == (MOST_SIMILAR, len(known))
    nearest = np.sort(distance)[MOST_SIMILAR - 1]
    certain = gains[distance < nearest - 1e-9]
    possible = gains[distance < nearest + 1e-9]
    assert min(possible) <= got.lowest <= min(certain)
    assert max(certain) <= got.highest <= max(possible)
    assert got.lowest <= got.median <= got.highest
    if len(possible) == MOST_SIMILAR:
        assert got.median == pytest.approx(np.median(possible))
    assert "-0.0" not in str(got)


def test_a_measured_training_is_nearest_to_itself():
    for one in trainings():
        (same,) = (other for other in trainings() if other == one)
        found = expectation(one.rows, one.batch_size, one.beaten_positives, [same])
        assert found[:3] == (one.gain,) * 3
        assert str(found).endswith("in the 1 most similar of 1 trainings of two epochs)")


def test_a_plan_that_others_gained_nothing_from_is_doubted():
    figures = {**dict.fromkeys(MEASURED, 0.0), "gain": 0.5, "false_negatives_random": 0.0}
    for one in trainings():
        known = expectation(one.rows, one.batch_size, one.beaten_positives)
        said = doubt(
            {**figures, "beaten_positives": one.beaten_positives}, one.rows, one.batch_size
        )
        assert bool(said) == (known.median < WORTH)
        assert not said or f"plans gained {known}; see docs/law.md" in said
    assert not math.isnan(sum(one.gain for one in trainings()))
