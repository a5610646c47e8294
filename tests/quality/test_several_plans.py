"""Several plans of the same data: measured as each alone, without doing the common work again."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest

from batchplan import InputError, ResourceError
from batchplan.plans import Batching, Plan
from batchplan.quality import EvaluationOptions, RowFacts, evaluate, evaluate_plans
from batchplan.runtime import Runtime


class Stages:
    """An observer that counts the stages and their steps."""

    def __init__(self):
        self.begun = Counter()

    def start(self, stage, total):
        self.begun[stage] += 1

    def advance(self, stage, steps):
        pass

    def finish(self, stage, seconds):
        pass

    def note(self, name, value):
        pass


def sampled(embeddings, batch_size, seed):
    """A plan that repeats some rows and leaves out others."""
    rng = np.random.default_rng(seed)
    n, batches = embeddings.num_rows, 6
    rows = np.concatenate([rng.choice(n, batch_size, replace=False) for _ in range(batches)])
    return Plan.from_batches(
        rows,
        np.arange(batches + 1) * batch_size,
        Batching(batch_size),
        num_rows=n,
        fingerprint=embeddings.fingerprint,
    )


def some_plans(helpers, embeddings):
    """Out of order in their batch sizes; the first, the third and the last are cut alike."""
    return [
        helpers.make_plan(embeddings, 8),
        helpers.make_plan(embeddings, 5),
        helpers.make_plan(embeddings, 8, seed=1),
        helpers.make_plan(embeddings, 8, tail="drop"),
        sampled(embeddings, 8, 3),
        helpers.make_plan(embeddings, 21),
        helpers.make_plan(embeddings, 8, seed=2),
    ]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    "guard", [{}, {"relative_margin": 0.1}, {"groups": 5, "absolute_margin": 0.1}], ids=str
)
def test_each_is_measured_as_it_is_alone(helpers, paired, guard):
    embeddings = helpers.clustered(67, paired=paired, copies=4)
    plans = some_plans(helpers, embeddings)
    options = {"random_trials": 3} | guard
    groups = options.pop("groups", None)
    given = {"groups": np.arange(67) // groups} if groups else {}
    settings, runtime = EvaluationOptions(**options), Runtime("cpu", seed=4)
    facts = RowFacts.read(embeddings, settings, runtime, **given)
    together = evaluate_plans(plans, embeddings, facts, settings, runtime)
    alone = [evaluate(plan, embeddings, device="cpu", seed=4, **given, **options) for plan in plans]
    assert [repr(one.to_dict()) for one in together] == [repr(one.to_dict()) for one in alone]
    assert len({repr(one) for one in together}) == len(plans)
    assert [one.batch_size for one in together] == [plan.batch_size for plan in plans]


def test_what_does_not_depend_on_the_plan_is_done_once(helpers):
    embeddings = helpers.clustered(67)
    plans, stages = some_plans(helpers, embeddings), Stages()
    options = EvaluationOptions(random_trials=3, relative_margin=0.1)
    evaluate_plans(plans, embeddings, RowFacts(), options, Runtime("cpu", observer=stages))
    cuts = {plan.batch_offsets.tobytes() for plan in plans}
    assert len(cuts) == 5
    assert stages.begun["random batches"] == len(cuts)
    assert stages.begun["evaluate"] == len({plan.batch_size for plan in plans}) == 3
    assert stages.begun["edges"] == 3
    assert stages.begun["guard"] == 1
    one, alone = Stages(), plans[0]
    evaluate_plans([alone], embeddings, RowFacts(), options, Runtime("cpu", observer=one))
    shared = {*one.begun} - {"random batches", "evaluate", "edges"}
    assert {name: one.begun[name] for name in shared} == {
        name: stages.begun[name] for name in shared
    }


def test_many_plans_take_little_more_memory_than_one(helpers):
    """12 bytes a row for each, to look up the rows of edges."""
    n = 9000  # the 8 bytes a row are then more than what Python itself takes meanwhile
    embeddings = helpers.clustered(n)
    plans = [helpers.make_plan(embeddings, 60, seed=seed) for seed in range(8)]
    options, runtime = EvaluationOptions(random_trials=2), Runtime("cpu")

    def peak(some):
        tracemalloc.start()  # of NumPy's arrays, which hold whatever grows with the plans
        evaluate_plans(some, embeddings, RowFacts(), options, runtime)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(plans[:1])  # what is loaded on first use
    most = peak(plans[-1:]) + 12 * n * (len(plans) - 1) + 8 * n
    assert any(peak(plans) < most for _ in range(3))  # tiles in flight depend on threads' timing


def test_no_plans(helpers):
    embeddings, options = helpers.clustered(20), EvaluationOptions()
    assert evaluate_plans([], embeddings, RowFacts(), options, Runtime("cpu")) == []


def test_one_plan_of_other_data_among_them(helpers):
    embeddings = helpers.clustered(20)
    plans = [
        helpers.make_plan(embeddings, 4),
        helpers.make_plan(helpers.clustered(20, seed=1), 4),
    ]
    with pytest.raises(InputError, match="fingerprint"):
        evaluate_plans(plans, embeddings, RowFacts(), EvaluationOptions(), Runtime("cpu"))


def test_too_little_memory_for_the_largest(helpers):
    embeddings = helpers.clustered(20)
    plans = [helpers.make_plan(embeddings, 4), sampled(embeddings, 20, 0)]
    with pytest.raises(ResourceError, match=r"20 rows need .* of memory and .* is left"):
        evaluate_plans(
            plans, embeddings, RowFacts(), EvaluationOptions(), Runtime("cpu", memory=10**6)
        )
