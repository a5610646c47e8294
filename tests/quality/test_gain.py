"""What a planner gained in its objective, against dense sums."""

import numpy as np
import pytest

from batchplan.quality import EvaluationOptions, RowFacts
from batchplan.quality.gain import measured_gain
from batchplan.runtime import Runtime

LIMITED = EvaluationOptions(relative_margin=0.1)


def dense_objective(helpers, plan, embeddings, penalty):
    """The objective in nats a row, and the share of pairs that break the guard."""
    S = helpers.dense(embeddings, "cosine") / 0.05
    by, _ = helpers.broken_pairs(embeddings, "cosine", relative_margin=0.1)
    broken = by["similarity"] | by["duplicate"] | by["known"]
    losses, fined, pairs, left = [], 0, 0, 0
    for batch in plan.batches():
        among = np.ix_(batch, batch)
        for side in (S, S.T):
            allowed = np.where(broken[among], -np.inf, side[among])
            losses += list(np.logaddexp.reduce(allowed, axis=1) - side[batch, batch])
        fined += by["similarity"][among].sum() / 2
        left += broken[among].sum() / 2
        pairs += len(batch) * (len(batch) - 1) / 2
    return np.mean(losses) - penalty * fined / len(losses), left / pairs


def test_the_objective_is_that_of_dense_sums(helpers):
    embeddings = helpers.clustered(45, copies=4)
    plan, before = (helpers.make_plan(embeddings, 8, seed=seed) for seed in (0, 1))
    found = measured_gain(plan, embeddings, RowFacts(), LIMITED, 0.2, Runtime("cpu"), before=before)
    assert found.limited
    for one, measured in ((plan, found.plan), (before, found.before)):
        objective, share = dense_objective(helpers, one, embeddings, 0.2)
        assert measured.objective == pytest.approx(objective, abs=1e-5)
        assert measured.false_negatives == pytest.approx(share)
    everything = helpers.guard_report(plan, embeddings, relative_margin=0.1)
    assert found.random.false_negatives == pytest.approx(
        everything["false_negatives_random"], abs=0.01
    )
    alone = measured_gain(plan, embeddings, RowFacts(), LIMITED, 0.2, Runtime("cpu"))
    assert (alone.plan, alone.before) == (found.plan, None)


def test_groups_break_the_guard_without_a_fine(helpers):
    embeddings = helpers.clustered(45)
    plan = helpers.make_plan(embeddings, 9)
    options = EvaluationOptions(guard=False)
    facts = RowFacts(np.zeros(45, np.int64))
    found = measured_gain(plan, embeddings, facts, options, 5.0, Runtime("cpu"))
    assert (found.limited, found.plan.false_negatives, found.plan.objective) == (False, 1.0, 0.0)


def test_some_batches_stand_for_all(helpers):
    embeddings = helpers.clustered(900, d=4)
    plan = helpers.make_plan(embeddings, 9)
    whole = measured_gain(plan, embeddings, RowFacts(), LIMITED, 0.0, Runtime("cpu")).plan
    some = measured_gain(plan, embeddings, RowFacts(), LIMITED, 0.0, Runtime("cpu"), most=450).plan
    assert some != whole
    assert some.objective == pytest.approx(whole.objective, abs=0.1)
    assert some.false_negatives == pytest.approx(whole.false_negatives, abs=0.05)
