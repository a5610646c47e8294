"""What is measured for a report, against dense computations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.errors import InputError
from batchplan.plans import Batching, Plan
from batchplan.quality import EvaluationOptions, RowFacts, evaluate_plans
from batchplan.quality.pairs import unguarded_pairs
from batchplan.report.contents import batch_losses, gather
from batchplan.report.similarities import run_similarities, similarities
from batchplan.runtime import Runtime

from .conftest import ROWS, SIZE


@pytest.fixture(scope="module")
def pairs(embeddings):
    return unguarded_pairs(embeddings, "cosine", 0.05, Runtime("cpu"))


@pytest.fixture(scope="module")
def xy(pairs):
    return pairs.x, pairs.y


@pytest.fixture(scope="module")
def dense(embeddings):
    """(N, N) cosine similarities."""
    x, y = (np.asarray(one.rows(0, ROWS), np.float64) for one in (embeddings.x, embeddings.y))
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (x, y)]
    return unit[0] @ unit[1].T


@given(cuts=st.sets(st.integers(1, ROWS - 1), max_size=20), seed=st.integers(0, 9))
def test_means_of_runs_are_those_of_the_dense_matrix(xy, dense, cuts, seed):
    rows = np.random.default_rng(seed).permutation(ROWS)
    starts = np.array([0, *sorted(cuts), ROWS])
    found = run_similarities(*xy, rows, starts)
    runs = np.split(rows, starts[1:-1])
    for i, one in enumerate(runs):
        for j, other in enumerate(runs):
            block = dense[np.ix_(one, other)]
            itself = (
                np.eye(len(one), dtype=bool) if i == j and len(one) > 1 else np.zeros_like(block)
            )
            assert found[i, j] == pytest.approx(block[itself == 0].mean(), abs=1e-6)


def dense_losses(dense, batch, temperature):
    """The losses of the rows of a batch, in both directions."""
    logits = dense[np.ix_(batch, batch)] / temperature
    return [np.log(np.exp(one).sum(1)) - one.diagonal() for one in (logits, logits.T)]


@pytest.mark.parametrize("name", [0, 1, 2])
def test_batch_losses_are_those_of_dense_losses(pairs, dense, plans, name):
    plan = list(plans.values())[name]
    found = batch_losses(pairs, plan.rows, plan.batch_offsets)
    losses = [dense_losses(dense, batch, 0.05) for batch in plan.batches()]
    expected = [np.mean(one) for one in losses]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_evaluations_are_those_of_evaluate(pairs, made, plans, embeddings):
    options = EvaluationOptions(relative_margin=0.1, random_trials=4)
    for one, (name, plan) in zip(made.contents.plans, plans.items(), strict=True):
        runtime = Runtime(seed=2)
        facts = RowFacts.read(embeddings, options, runtime)
        (expected,) = evaluate_plans([plan], embeddings, facts, options, runtime)
        assert one.name == name
        assert one.evaluation == expected
        weights = np.diff(plan.batch_offsets)
        mean = np.average(batch_losses(pairs, plan.rows, plan.batch_offsets), weights=weights)
        assert mean == pytest.approx(expected.loss_train, rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "size", "a_cell", "rows_a_cell", "batches"),
    [
        (40_000, 64, 7, 1, 4),
        (3_000, 8, 4, 1, 8),
        (9_000, 4_096, 1, 32, 2),
        (100, 100, 1, 1, 1),
        (1_030, 515, 1, 5, 2),
    ],
)
def test_pictures_stay_small_and_hold_whole_batches(rows, size, a_cell, rows_a_cell, batches):
    class Side:
        num_rows, dim, device = rows, 1, "cpu"

        @staticmethod
        def gather(indices):
            import torch

            return torch.from_numpy(indices).double()[:, None] / rows

    offsets = np.append(np.arange(0, rows, size), rows)
    one = similarities(Side, Side, np.arange(rows), offsets)
    assert one.overview.shape == (-(-(len(offsets) - 1) // a_cell),) * 2
    assert len(one.zoom_edges) == batches + 1
    assert one.zoom.shape == (one.zoom_edges[-1],) * 2
    assert max(one.overview.shape[0], one.zoom.shape[0]) <= 260
    middle = (len(offsets) - 1 - batches) // 2  # the first batch of those in the middle
    first = offsets[middle]
    assert one.zoom_rows == (first, offsets[middle + batches] - 1)
    cell = np.arange(first, min(first + rows_a_cell, offsets[middle + 1]))
    square = np.outer(cell, cell) / rows**2
    expected = square[~np.eye(len(cell), dtype=bool)].mean() if len(cell) > 1 else square.item()
    assert one.zoom[0, 0] == pytest.approx(expected)


def test_plans_that_no_picture_can_compare_are_refused(embeddings, plans):
    options, runtime = EvaluationOptions(random_trials=2), Runtime()
    small = Plan.cut(np.arange(ROWS), Batching(8), num_rows=ROWS)
    other = Plan.cut(np.arange(ROWS + 1), Batching(SIZE), num_rows=ROWS + 1)
    many = {str(i): small for i in range(7)}
    for given_, parts in [
        ({}, ["got 0 plans", "1 to 6"]),
        (many, ["got 7 plans", "1 to 6"]),
        ({**plans, "small": small}, ["batch sizes", "small 8", "random.npy 16"]),
        ({"other": other}, ["145 rows", "144"]),
    ]:
        with pytest.raises(InputError) as caught:
            gather(given_, embeddings, RowFacts(), options, runtime)
        assert all(part in str(caught.value) for part in parts)
