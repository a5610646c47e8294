"""The coupon collector's figures against simulation and against the formulas of the paper."""

from math import comb

import numpy as np
import pytest

from batchplan import InputError
from tests.benchmarks.reproductions.coupons import expected_batches, expected_draws


def simulated(wanted, population, size, replace, trials=1000):
    """Batches until rows 0 .. wanted - 1 were all in one: the mean, and its standard error."""
    rng = np.random.default_rng(0)
    counts = np.empty(trials)
    for trial in range(trials):
        seen: set[int] = set()
        count = 0
        while len(seen) < wanted:
            batch = rng.choice(population, size, replace=replace)
            seen |= set(batch[batch < wanted].tolist())
            count += 1
        counts[trial] = count
    return counts.mean(), counts.std() / np.sqrt(trials)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(("wanted", "population", "size"), [(1, 6, 2), (4, 12, 5), (6, 20, 1)])
def test_against_simulation(wanted, population, size, replace):
    mean, error = simulated(wanted, population, size, replace)
    found = expected_batches(wanted, population, size, replace=replace)
    assert abs(found - mean) < 4 * error
    if size == 1:
        assert found == pytest.approx(expected_draws(wanted, population))


def test_theorem_3():
    """All M of M rows: the sum as equation 17 writes it."""
    m, b = 9, 4
    paper = sum((-1) ** (m - j + 1) * comb(m, j) / (1 - (j / m) ** b) for j in range(m))
    assert expected_batches(m, m, b, replace=True) == pytest.approx(paper)


def test_equation_16():
    assert expected_draws(3, 30) == pytest.approx(30 * (1 + 1 / 2 + 1 / 3))


@pytest.mark.parametrize("wanted", [100, 1000])
def test_many_coupons(wanted):
    """Where the terms are 10^30 times their sum: bounded by draws in batches, and rising in k."""
    found = expected_batches(wanted, 10**6, 63)
    assert found == pytest.approx(expected_draws(wanted, 10**6) / 63, rel=1e-3)
    assert found > expected_batches(wanted - 1, 10**6, 63)


def test_all_in_one_batch():
    assert expected_batches(5, 9, 9) == 1


def test_counts_out_of_range():
    for arguments in ((0, 5, 1), (6, 5, 1), (1, 5, 6)):
        with pytest.raises(InputError, match="expected"):
            expected_batches(*arguments)
