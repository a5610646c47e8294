"""What holds for any data and any plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.data import Embeddings
from batchplan.plans import Batching, Plan
from batchplan.quality import evaluate

NOISE = 1e-4  # float32 similarities over the smallest temperature below
LOSSES = ("loss_train", "loss_global", "loss_oracle", "gap")


@st.composite
def problems(draw):
    n = draw(st.integers(3, 40))
    batch_size = draw(st.integers(2, n))
    tail = draw(st.sampled_from(("keep", "drop", "pad")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from((0.1, 1.0, 3.0)))
    x = rng.standard_normal((n, 5)) + draw(st.sampled_from((-2.0, 0.0, 2.0)))
    y = x + spread * rng.standard_normal((n, 5))
    if draw(st.booleans()):  # ties
        x, y = np.round(x) + 0.5, np.round(y) + 0.5
    paired = draw(st.booleans())
    embeddings = Embeddings.from_arrays(*(side.astype(np.float32) for side in (x, y)[: 1 + paired]))
    plan = Plan.cut(rng.permutation(n), Batching(batch_size, tail=tail), num_rows=n)
    options = {
        "temperature": draw(st.sampled_from((0.01, 0.05, 1.0))),
        "similarity": draw(st.sampled_from(("cosine", "dot"))),
        "random_trials": 2,
    }
    return embeddings, plan, options


@settings(deadline=None, max_examples=40)
@given(problems())
def test_order_of_the_losses(problem):
    embeddings, plan, options = problem
    found = evaluate(plan, embeddings, **options)
    largest = 1.0 if options["similarity"] == "cosine" else 100.0
    noise = NOISE * largest
    assert -noise <= found.loss_oracle <= found.loss_global + noise
    assert 0 < found.positive_probability <= 1
    if found.partitions_rows:
        assert found.loss_train <= found.loss_oracle + noise
    for bound in ("bound_36", "bound_37"):
        assert found.gap <= found.computed[bound] + noise
    for share in (*found.hard_negative_recall.values(), found.computed["edge_recall"]):
        assert 0 <= share <= 1
    percentiles = list(found.similarity_percentiles.values())
    assert percentiles == sorted(percentiles)


@settings(deadline=None, max_examples=15)
@given(problems())
def test_one_batch_of_all_rows_has_no_gap(problem):
    embeddings, _, options = problem
    n = embeddings.num_rows
    plan = Plan.cut(np.arange(n)[::-1], Batching(n), num_rows=n)
    found = evaluate(plan, embeddings, **options)
    noise = NOISE * (1.0 if options["similarity"] == "cosine" else 100.0)
    assert abs(found.gap) <= noise
    assert abs(found.loss_oracle - found.loss_global) <= noise
    assert (found.random_z, found.loss_random_std) == (0, 0)
    assert (found.gap_reduction, found.oracle_share) == (0, 0)  # as of random batches
    assert found.hard_negative_recall == {"1": 1, "10": 1}
    assert found.computed["edge_recall"] == 1


@settings(deadline=None, max_examples=15)
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_batches_and_within_them_is_free(problem, random):
    embeddings, plan, options = problem
    full = [batch.tolist() for batch in plan.batches() if len(batch) == plan.batch_size]
    short = [batch.tolist() for batch in plan.batches() if len(batch) < plan.batch_size]
    for batch in (*full, *short):
        random.shuffle(batch)
    random.shuffle(full)
    rows = np.concatenate([*full, *short])
    moved = Plan(rows, plan.batch_offsets, plan.metadata)
    first, second = (evaluate(p, embeddings, **options) for p in (plan, moved))
    for name in (*LOSSES, "positive_probability"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-9, abs=1e-9)
    assert first.hard_negative_recall == second.hard_negative_recall
