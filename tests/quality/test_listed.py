"""What lists of candidates tell of a plan, against its definition."""

import json

import numpy as np
import pytest

from batchplan import Candidates, InputError, evaluate_candidates
from batchplan.plans import Batching, Plan


def mined(n=60, seed=0):
    """Lists of 3 to 9 rows, and for each row a dictionary of its scores."""
    rng = np.random.default_rng(seed)
    ids, scores = [], []
    for row in range(n):
        others = rng.permutation(np.delete(np.arange(n), row))[: rng.integers(3, 10)]
        ids.append(others.tolist())
        scores.append((-np.sort(-rng.random(len(others)))).astype(np.float32).tolist())
    positive = (0.5 + 0.5 * rng.random(n)).astype(np.float32)
    known = [dict(zip(one, other, strict=True)) for one, other in zip(ids, scores, strict=True)]
    return Candidates.from_lists(ids, scores, positive), known, positive.astype(np.float64)


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_every_figure(tail):
    lists, known, positive = mined()
    ceilings = 0.9 * np.maximum(positive, sorted(positive)[(len(positive) - 1) // 2] - 1e-6)
    plan = Plan.cut(np.random.default_rng(1).permutation(60), Batching(8, tail=tail), num_rows=60)
    found = evaluate_candidates(plan, lists, relative_margin=0.1)
    batch_of = {row: number for number, batch in enumerate(plan.batches()) for row in batch}
    pairs = [(i, j) for i in batch_of for j in batch_of if i != j and batch_of[i] == batch_of[j]]
    for m in (1, 10):
        first = [(i, j) for i in batch_of for j in list(known[i])[:m]]
        met = [batch_of[i] == batch_of.get(j) for i, j in first]
        assert found.hard_negative_recall[str(m)] == pytest.approx(np.mean(met))
    assert found.listed_share == pytest.approx(np.mean([j in known[i] for i, j in pairs]))
    near = [max(known[i].get(j, -9), known[j].get(i, -9)) for i, j in pairs]
    limits = [min(ceilings[i], ceilings[j]) - 1e-7 for i, j in pairs]
    assert 2 * found.broken == sum(np.greater_equal(near, limits)) > 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_without_a_limit_and_other_rows():
    lists, *_ = mined()
    plan = Plan.cut(np.arange(60), Batching(8), num_rows=60)
    found = evaluate_candidates(plan, lists, guard=False)
    assert (found.limit, found.broken) == ({}, None)
    assert evaluate_candidates(plan, lists).limit == {"relative_margin": 0.1}
    with pytest.raises(InputError, match="59"):
        evaluate_candidates(Plan.cut(np.arange(59), Batching(8), num_rows=59), lists)


@pytest.mark.parametrize(("steps", "broken"), [(0, 1), (1, 1), (2, 0)])
def test_scores_that_a_rounding_keeps_from_a_ceiling_reach_it(steps, broken):
    """One step of float32 below it, but not two."""
    score = np.float32(0.9)
    for _ in range(steps):
        score = np.nextafter(score, np.float32(0))
    lists = Candidates.from_lists([[1], [0]], [[score], [0.1]], np.ones(2, np.float32))
    plan = Plan.cut(np.arange(2), Batching(2), num_rows=2)
    assert evaluate_candidates(plan, lists, max_score=0.9).broken == broken
