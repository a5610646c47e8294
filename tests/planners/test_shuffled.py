"""The baselines that look at no similarities, how they relate to `random`, and their guard."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.planners import plan
from batchplan.planners.random import RandomOptions, ShuffledOptions
from tests.dense import similarities


def test_epochs(make):
    embeddings = make(75)

    def rows(seed, epoch):
        return plan(embeddings, planner="shuffled", batch_size=8, seed=seed, epoch=epoch).rows

    first = plan(embeddings, planner="random", batch_size=8, seed=1).rows
    assert np.array_equal(rows(1, 0), first)
    found = {tuple(rows(seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(found) == 16
    assert np.array_equal(rows(2, 3), rows(2, 3))


def test_refusal(make):
    with pytest.raises(InputError, match="epoch: got -1, expected a number of at least 0"):
        plan(make(20), planner="shuffled", batch_size=4, epoch=-1)


def test_a_guard_is_on_where_something_is_to_be_parted():
    for kind in (RandomOptions, ShuffledOptions):
        assert kind().guard is False
        assert kind(guard=True).guard is True
        assert kind(relative_margin=0.1).guard is kind(max_score=0.0).guard is True
        assert kind(group_column="group").guard is True
        assert kind(group_column="group", guard=False).guard is False
        assert kind(label_table="t", group_column="group").guard is True


@pytest.fixture
def answers():
    """400 pairs, of which 50 have one of two answers, and 20 questions come twice."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 400, 8)).astype(np.float32)
    y[:50] = y[[0, 1] * 25]
    x[60:80] = x[80:100]
    return Embeddings.from_arrays(x, y), np.unique(y, axis=0, return_inverse=True)[1].ravel()


@pytest.mark.parametrize("planner", ["random", "shuffled"])
def test_no_duplicates(answers, planner):
    embeddings, codes = answers
    x = embeddings.x.rows(0, 400)
    options = {"batch_size": 8, "seed": 2, "device": "cpu"}
    plain, guarded = (
        plan(embeddings, planner=planner, guard=on, **options) for on in (False, True)
    )
    assert not plain.metadata.metrics
    assert guarded.metadata.metrics == {"broken_pairs": 0}
    assert sorted(guarded.rows) == list(range(400))
    for batch in guarded.batches():
        assert len(np.unique(codes[batch])) == len(np.unique(x[batch], axis=0)) == 8
    # The others stay where they are.
    assert np.mean(plain.rows == guarded.rows) > 0.7


def test_what_cannot_be_kept_apart_is_counted(make, tmp_path):
    """25 batches cannot hold a row each of a group of 50."""
    table = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"group": [0] * 50 + [None] * 150}), table)
    made = plan(
        make(200), planner="random", batch_size=8, guard=False, group_column="group",
        label_table=str(table), device="cpu",
    )  # fmt: skip
    held = [int((batch < 50).sum()) for batch in made.batches()]
    assert made.metadata.metrics == {"broken_pairs": sum(n * (n - 1) // 2 for n in held)}
    assert max(held) <= 3


def test_a_limit_parts_what_is_too_similar(make):
    embeddings = make(300)
    scores = similarities(embeddings)

    def pairs(made):
        return sum(
            np.count_nonzero(np.triu(np.maximum(s, s.T) >= 0.6, 1))
            for s in (scores[np.ix_(batch, batch)] for batch in made.batches())
        )

    plain, guarded = (
        plan(embeddings, planner="random", batch_size=8, device="cpu", **limit)
        for limit in ({}, {"max_score": 0.6})
    )
    assert pairs(guarded) == guarded.metadata.metrics["broken_pairs"]
    assert pairs(guarded) < pairs(plain) / 10


def test_a_guard_asks_for_what_similarities_need():
    x = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
    x[11] = 0
    with pytest.raises(InputError, match="row 11"):
        plan(Embeddings.from_arrays(x), planner="random", batch_size=8, relative_margin=0.1)
