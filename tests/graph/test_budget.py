"""How many edges a budget stands for."""

import numpy as np
import pytest

from batchplan import InputError
from batchplan.graph import EdgeBudget


@pytest.mark.parametrize(
    ("quantile", "n", "edges"),
    [
        (0.999, 1000, 999),
        (0.5, 5, 10),
        (0.9, 11, 11),
        (0.999, 2, 1),  # never empty
        (1 - 1e-12, 1000, 1),
        (1e-12, 1000, 999_000),
        (5e-324, 3, 6),  # never more than there are
        (0.99, 10**6, 9_999_990_000),
    ],
)
def test_quantile(quantile, n, edges):
    assert EdgeBudget(quantile).edges(n) == edges


def test_neighbors_win_over_the_quantile():
    assert EdgeBudget(0.5, neighbors=7).edges(100) == 700
    assert EdgeBudget(2.0, neighbors=7).edges(100) == 700
    assert EdgeBudget(neighbors=99).edges(100) == 9900
    assert EdgeBudget(neighbors=np.int64(1)).edges(2) == 2


def test_neighbors_are_a_quantile():
    """1 - neighbors / N of the N N entries, as the paper has it."""
    assert EdgeBudget(neighbors=512).edges(10_000) == round(512 / 10_000 * 10_000**2)


@pytest.mark.parametrize("quantile", [0, 1, -0.1, 1.5, np.nan, np.inf, -np.inf])
def test_bad_quantile(quantile):
    with pytest.raises(InputError, match=f"quantile: got {quantile}, expected"):
        EdgeBudget(quantile)


@pytest.mark.parametrize("neighbors", [0, -3, np.nan, np.inf, 2.5])
def test_bad_neighbors(neighbors):
    with pytest.raises(InputError, match=f"neighbors: got {neighbors}, expected"):
        EdgeBudget(neighbors=neighbors)


@pytest.mark.parametrize("neighbors", [100, 101, 10**9])
def test_as_many_neighbors_as_rows(neighbors):
    with pytest.raises(InputError, match=rf"got {neighbors}, .* the 100 rows \(at most 99\)"):
        EdgeBudget(neighbors=neighbors).edges(100)
