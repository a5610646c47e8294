"""What lists of candidates tell of a plan, against its definition."""

import json

import numpy as np
import pytest

from batchplan import Candidates, InputError, evaluate_candidates
from batchplan.plans import Batching, Plan
from batchplan.quality.references import _STREAM, random_rows
from batchplan.runtime import Runtime


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


def measured(batches, known, positive, tau, ceilings):
    loss = least = 0.0
    listed = broken = entries = 0
    hits = {1: 0, 10: 0}
    wanted = {1: 0, 10: 0}
    for batch in batches:
        for i in batch:
            scores = [known[i].get(j) for j in batch if j != i]
            told = [score for score in scores if score is not None]
            floor = min(known[i].values())
            upper = [positive[i], *(floor if score is None else score for score in scores)]
            for values, name in ((upper, "loss"), ([positive[i], *told], "least")):
                logits = np.array(values, np.float64) / tau
                value = np.logaddexp.reduce(logits) - positive[i] / tau
                loss, least = (loss + value, least) if name == "loss" else (loss, least + value)
            listed += len(told)
            entries += 1
            for m in hits:
                first = list(known[i])[:m]
                hits[m] += len(set(first) & set(batch))
                wanted[m] += len(first)
        for i in batch:
            for j in batch:
                if i < j:
                    near = [known[a].get(b, -9) for a, b in ((i, j), (j, i))]
                    broken += max(near) >= min(ceilings[i], ceilings[j]) - 1e-7
    return loss / entries, least / entries, listed, broken, {m: hits[m] / wanted[m] for m in hits}


@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_every_figure(tail, tau):
    lists, known, positive = mined()
    ceilings = 0.9 * np.maximum(positive, sorted(positive)[(len(positive) - 1) // 2] - 1e-6)
    plan = Plan.cut(np.random.default_rng(1).permutation(60), Batching(8, tail=tail), num_rows=60)
    found = evaluate_candidates(
        plan, lists, temperature=tau, relative_margin=0.1, random_trials=3, seed=5
    )
    batches = [batch.tolist() for batch in plan.batches()]
    loss, least, listed, broken, recalls = measured(batches, known, positive, tau, ceilings)
    assert found.loss_train == pytest.approx(loss, rel=1e-6)
    assert found.loss_train_least == pytest.approx(least, rel=1e-6)
    assert found.broken == broken
    assert found.hard_negative_recall == pytest.approx({"1": recalls[1], "10": recalls[10]})
    pairs = sum(len(batch) * (len(batch) - 1) for batch in batches)
    assert found.listed_share == pytest.approx(listed / pairs)
    random = []
    for trial in range(3):
        rows = random_rows(Runtime(seed=5).generator(_STREAM, trial), 60, plan.batch_offsets)
        drawn = [part.tolist() for part in np.split(rows, plan.batch_offsets[1:-1])]
        random.append(measured(drawn, known, positive, tau, ceilings)[:4])
    mean = np.mean(random, axis=0)
    assert found.loss_random == pytest.approx(mean[0], rel=1e-6)
    assert found.loss_random_least == pytest.approx(mean[1], rel=1e-6)
    assert found.broken_random == pytest.approx(mean[3])
    oracle = []
    for row in range(60):
        first = list(known[row].values())[:7]
        values = [positive[row], *first, *[min(known[row].values())] * (7 - len(first))]
        logits = np.array(values) / tau
        oracle.append(np.logaddexp.reduce(logits) - positive[row] / tau)
    assert found.loss_oracle == pytest.approx(np.mean(oracle), rel=1e-6)
    share = (loss - mean[0]) / (np.mean(oracle) - mean[0])
    assert found.oracle_share == pytest.approx(share, rel=1e-5)
    json.dumps(found.to_dict(), allow_nan=False)


def test_without_a_limit_and_other_rows():
    lists, *_ = mined()
    plan = Plan.cut(np.arange(60), Batching(8), num_rows=60)
    found = evaluate_candidates(plan, lists, guard=False)
    assert (found.limit, found.broken, found.broken_random) == ({}, None, None)
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
    assert evaluate_candidates(plan, lists, max_score=0.9, random_trials=2).broken == broken
