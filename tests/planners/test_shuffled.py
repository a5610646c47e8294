"""The baselines that look at no similarities, and how they relate to `random`."""

import numpy as np
import pytest

from batchplan import InputError
from batchplan.planners import plan


def test_fixed_is_random(make):
    embeddings = make(75)
    for seed in (0, 5):
        fixed, random = (
            plan(embeddings, planner, batch_size=8, seed=seed).rows
            for planner in ("fixed", "random")
        )
        assert np.array_equal(fixed, random)


def test_epochs(make):
    embeddings = make(75)

    def rows(seed, epoch):
        return plan(embeddings, "shuffled", batch_size=8, seed=seed, epoch=epoch).rows

    first = plan(embeddings, "fixed", batch_size=8, seed=1).rows
    assert np.array_equal(rows(1, 0), first)
    found = {tuple(rows(seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(found) == 16
    assert np.array_equal(rows(2, 3), rows(2, 3))


def test_refusal(make):
    with pytest.raises(InputError, match="epoch: got -1, expected a number of at least 0"):
        plan(make(20), "shuffled", batch_size=4, epoch=-1)
