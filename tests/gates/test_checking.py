"""check_plan: a plan measured and judged from Python."""

from dataclasses import replace

import numpy as np
import pytest

import batchplan
from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.gates import check_plan, fail_over, fail_regress, fail_under
from batchplan.plans import Batching
from batchplan.quality import EvaluationOptions, RowFacts
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu", seed=4)
OPTIONS = EvaluationOptions(random_trials=3)


@pytest.fixture(scope="module")
def embeddings():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((96, 12)).astype(np.float32)
    return Embeddings.from_arrays(x, x + draw.standard_normal(x.shape).astype(np.float32))


@pytest.fixture(scope="module")
def plan(embeddings):
    return batchplan.plan(embeddings, planner="bcs", batch_size=8)


def test_judged_by_what_evaluate_measures(embeddings, plan):
    groups = np.arange(96) % 5
    found = batchplan.evaluate(plan, embeddings, random_trials=3, seed=4, groups=groups)
    reduction, share = found.gap_reduction, found.guard.false_negatives
    gates = [
        fail_under(f"gap_reduction={reduction!r}"),
        fail_under(f"gap_reduction={float(np.nextafter(reduction, 1))!r}"),
        fail_over(f"false_negatives={share!r}"),
    ]
    facts = RowFacts.read(embeddings, OPTIONS, CPU, groups, "kind")
    judgement, measured = check_plan(plan, embeddings, facts, gates, OPTIONS, CPU, name="p")
    assert [one.passed for one in judgement.verdicts] == [True, False, True]
    assert (judgement.plan, judgement.passed, judgement.warnings) == ("p", False, ())
    assert measured.evaluation == found.to_dict()
    assert measured.settings["group_column"] == "kind"
    assert measured.settings["seed"] == 4


def test_against_a_baseline(embeddings, plan):
    _, baseline = check_plan(plan, embeddings, RowFacts(), [], OPTIONS, CPU)
    gates = [fail_regress("loss_train=0")]
    same, _ = check_plan(plan, embeddings, RowFacts(), gates, OPTIONS, CPU, baseline=baseline)
    assert same.passed
    worse = batchplan.plan(embeddings, planner="random", batch_size=8)
    judgement, _ = check_plan(worse, embeddings, RowFacts(), gates, OPTIONS, CPU, baseline=baseline)
    assert not judgement.passed
    other = Embeddings.from_arrays(embeddings.y.rows(0, 96), embeddings.x.rows(0, 96))
    moved = batchplan.Plan.cut(plan.rows, Batching(8), num_rows=96)
    judgement, _ = check_plan(
        moved, other, RowFacts(), gates, OPTIONS, CPU, baseline=baseline, baseline_name="b.json"
    )
    (warning,) = judgement.warnings
    assert warning.startswith("b.json: measured on other embeddings")
    with pytest.raises(InputError, match=r"b\.json: measured with seed 4, got 5"):
        check_plan(
            plan, embeddings, RowFacts(), gates, OPTIONS, Runtime(device="cpu", seed=5),
            baseline=baseline, baseline_name="b.json",
        )  # fmt: skip


def test_a_metric_that_is_not_measured(embeddings, plan):
    options = replace(OPTIONS, guard=False)
    said = r"is undefined for this plan; leave it out \(docs/metrics\.md"
    with pytest.raises(InputError, match=said):
        check_plan(plan, embeddings, RowFacts(), [fail_over("guard.broken=1")], options, CPU)


def test_estimates_are_judged_by_their_values(embeddings, plan):
    options = replace(OPTIONS, sample=64)
    found = batchplan.evaluate(plan, embeddings, random_trials=3, seed=4, sample=64)
    limits = found.gap_reduction, float(np.nextafter(found.gap_reduction, 1))
    gates = [fail_under(f"gap_reduction={limit!r}") for limit in limits]
    judgement, _ = check_plan(plan, embeddings, RowFacts(), gates, options, CPU)
    assert [one.passed for one in judgement.verdicts] == [True, False]
