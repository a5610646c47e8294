"""The pools of `osgd`, drawn again here, and what it keeps of them."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import logsumexp

from batchplan import InputError
from batchplan.planners import plan
from batchplan.runtime import Runtime
from tests.dense import unit


def loss(embeddings, batch, temperature):
    x, y = (unit(side.take(batch)) for side in (embeddings.x, embeddings.y))
    logits = x @ y.T / temperature
    own = np.diagonal(logits)
    return np.mean(logsumexp(logits, 1) - own) + np.mean(logsumexp(logits, 0) - own)


@pytest.mark.parametrize(("pool", "keep"), [(5, 1), (5, 2), (3, 3), (1, 1)])
@pytest.mark.parametrize("wanted", [None, 1, 20])
def test_keeps_the_highest_losses(make, pool, keep, wanted):
    embeddings = make(75)
    made = plan(
        embeddings, planner="osgd", batch_size=8, seed=2, temperature=0.5,
        pool=pool, keep=keep, num_batches=wanted,
    )  # fmt: skip
    number = wanted or 10
    generator = Runtime(seed=2).generator()
    expected = []
    for _ in range(-(-number // keep)):
        drawn = [generator.choice(75, 8, replace=False) for _ in range(pool)]
        losses = [loss(embeddings, batch, 0.5) for batch in drawn]
        expected += [drawn[one] for one in np.argsort(-np.array(losses), kind="stable")[:keep]]
    assert made.num_batches == number
    assert np.array_equal(made.rows, np.concatenate(expected[:number]))
    assert not made.metadata.partitions_rows


@pytest.mark.parametrize("pool", [70, 1000])
def test_a_pool_of_all_batches_keeps_the_hardest_of_all(make, pool):
    """The paper takes the batch of the highest loss before each step."""
    embeddings = make(8)
    every = [np.array(rows) for rows in combinations(range(8), 4)]
    losses = [loss(embeddings, batch, 0.05) for batch in every]
    best = np.argsort(-np.array(losses), kind="stable")
    options = {"planner": "osgd", "batch_size": 4, "pool": pool}
    once = plan(embeddings, **options, keep=3, num_batches=3)
    assert [batch.tolist() for batch in once.batches()] == [every[i].tolist() for i in best[:3]]
    again = plan(embeddings, **options)  # two pools of the same batches
    assert [batch.tolist() for batch in again.batches()] == [every[best[0]].tolist()] * 2
    most = plan(embeddings, **options, keep=70, num_batches=80)
    assert len({tuple(batch) for batch in most.batches()}) == 70


def test_harder_than_random(make):
    embeddings = make(200)

    def mean(pool):
        made = plan(embeddings, planner="osgd", batch_size=8, pool=pool, num_batches=40)
        return np.mean([loss(embeddings, batch, 0.05) for batch in made.batches()])

    assert mean(32) > mean(4) > mean(1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pool": 0}, "pool: got 0, expected a number of at least 1"),
        ({"keep": 0}, "keep: got 0, expected a number of at least 1"),
        ({"pool": 4, "keep": 5}, "keep: got 5, expected at most the 4"),
        ({"num_batches": 0}, "num batches: got 0, expected a number of at least 1"),
        ({"temperature": -1.0}, "temperature: got -1.0"),
    ],
)
def test_refusals(make, options, says):
    with pytest.raises(InputError) as error:
        plan(make(20), planner="osgd", batch_size=4, **options)
    assert says in str(error.value)
