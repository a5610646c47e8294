"""The coupon collector's figures against simulation and against the formulas of the paper."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from batchplan import Negatives
from batchplan.plans import PlanMetadata
from batchplan.quality.coupons import evaluate_negatives, expected_batches, expected_draws


def simulated(wanted, population, size, trials=1000):
    """Batches until rows 0 .. wanted - 1 were all in one: the mean, and its standard error."""
    rng = np.random.default_rng(0)
    counts = np.empty(trials)
    for trial in range(trials):
        seen: set[int] = set()
        count = 0
        while len(seen) < wanted:
            batch = rng.integers(population, size=size)
            seen |= set(batch[batch < wanted].tolist())
            count += 1
        counts[trial] = count
    return counts.mean(), counts.std() / np.sqrt(trials)


@pytest.mark.parametrize(("wanted", "population", "size"), [(1, 6, 2), (4, 12, 5), (6, 20, 1)])
def test_against_simulation(wanted, population, size):
    mean, error = simulated(wanted, population, size)
    assert abs(expected_batches(wanted, population, size) - mean) < 4 * error


def test_theorem_3():
    """All M of M rows: the sum as equation 17 writes it."""
    m, b = 9, 4
    paper = sum((-1) ** (m - j + 1) * comb(m, j) / (1 - (j / m) ** b) for j in range(m))
    assert expected_batches(m, m, b) == pytest.approx(paper)


def test_equation_16():
    assert expected_batches(3, 30, 1) == pytest.approx(30 * (1 + 1 / 2 + 1 / 3))


@pytest.mark.parametrize("wanted", [100, 1000])
def test_many_coupons(wanted):
    """Where the terms are 10^300 times their sum: bounded by draws in batches, and rising in k."""
    found = expected_batches(wanted, 10**6, 63)
    single = 10**6 / 63 * sum(1 / i for i in range(1, wanted + 1))
    assert found == pytest.approx(single, rel=1e-3)
    assert found > expected_batches(wanted - 1, 10**6, 63)


def test_equation_33_is_equation_31():
    """The integral against inclusion and exclusion over all subsets of the rows."""
    p = np.random.default_rng(0).dirichlet(np.full(7, 0.5), 5)[:, :6].astype(np.float32)
    p[0] = [1e-9, 0.5, 0.1, 1e-5, 0.3, 0.05]

    def over_subsets(row):
        return sum(
            (-1) ** (m + 1) / sum(map(float, part))
            for m in range(1, 7)
            for part in combinations(row, m)
        )

    paper = [over_subsets(row) for row in p]
    np.testing.assert_allclose(expected_draws(p), paper, rtol=1e-6)
    np.testing.assert_allclose(expected_draws(np.full((1, 5), 0.1, np.float32)), 10 * 137 / 60)


def test_a_table_of_negatives():
    metadata = PlanMetadata(batch_size=3, num_rows=6, partitions_rows=False)
    table = Negatives([0, 4], [[1, 2], [2, 5]], metadata, probabilities=[[0.5, 0.25], [0.1, 0.1]])
    found = evaluate_negatives(table).to_dict()
    assert found["coverage"] == {
        "rows_seen": 3, "rows_never_seen": 3, "share_seen": 0.5, "repeats": 1, "most_repeated": 2,
    }  # fmt: skip
    assert found["uniform_draws"] == pytest.approx(5 * 1.5)
    assert found["uniform_batches"] == pytest.approx(expected_batches(2, 5, 2))
    assert found["drawn"] == pytest.approx(((2 + 4 - 4 / 3) + (10 + 10 - 5)) / 2)
    chosen = Negatives([0, 4], [[1, 2], [2, 5]], metadata)
    assert evaluate_negatives(chosen).drawn is None
