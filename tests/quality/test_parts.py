"""The parts of the metrics that have rules of their own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.quality.losses.all_rows import global_statistics
from batchplan.quality.losses.largest import KeyLargest, Largest
from batchplan.quality.losses.streams import log_sums
from batchplan.quality.pairs import unguarded_pairs
from batchplan.quality.recall import hard_negative_recall, membership
from batchplan.quality.references import random_rows
from batchplan.quality.sample import Sample
from batchplan.runtime import Runtime

CPU = torch.device("cpu")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_hardest_with_ties(data):
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 200))
    count = data.draw(st.integers(1, columns))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values = rng.integers(-3, 4, (rows, columns)).astype(np.float32)
    values[values == 0] *= -1  # -0.0 ties with 0.0
    values[rng.random(values.shape) < 0.2] = 0
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    cuts = sorted(data.draw(st.lists(st.integers(0, columns), max_size=3)))
    for kept in (Largest(rows, count), KeyLargest(rows, count, CPU)):
        for start, stop in zip([0, *cuts], [*cuts, columns], strict=True):
            if start < stop:
                kept.offer(torch.from_numpy(values[:, start:stop].copy()), start)
        found, where = kept.sorted()
        assert where.tolist() == order.tolist()
        assert found.tolist() == np.take_along_axis(values, order, axis=1).tolist()


def test_masked_values_are_not_kept():
    tile = torch.tensor([[1.0, -torch.inf, -5.0, -torch.inf]])
    for kept in (Largest(1, 2), KeyLargest(1, 2, CPU)):
        kept.offer(tile, 0)
        assert kept.sorted()[1].tolist() == [[0, 2]]


def test_log_sum_exp_neither_overflows_nor_vanishes():
    nothing = torch.full((2,), -torch.inf, dtype=torch.float64)
    for consume in (False, True):
        running = nothing
        for tile in ([[-1e5, -2e5], [-torch.inf, -torch.inf]], [[9e4, 1e5], [-1e30, -torch.inf]]):
            running = torch.logaddexp(running, log_sums(torch.tensor(tile), consume=consume))
        assert running.tolist() == [1e5, pytest.approx(-1e30)]
    assert log_sums(torch.full((2, 3), -torch.inf)).tolist() == [-torch.inf, -torch.inf]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_membership_with_repeated_and_missing_rows(data):
    n = data.draw(st.integers(2, 12))
    batch = st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)
    batches = data.draw(st.lists(batch, min_size=1, max_size=5))
    rows = np.array([row for b in batches for row in b])
    offsets = np.cumsum([0, *map(len, batches)])
    members = membership(rows, offsets, n)
    wanted = np.random.default_rng(n).integers(0, n, (n, 3))
    share = np.mean([np.isin(wanted[row], b).mean() for b in batches for row in b])
    recall, error = hard_negative_recall(members, Sample(n), [wanted])
    assert (recall, error) == (pytest.approx(share), 0)


@given(st.integers(2, 20), st.data())
def test_random_rows_hold_each_row_before_any_again(n, data):
    sizes = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=8))
    offsets = np.cumsum([0, *sizes])
    rows = random_rows(np.random.default_rng(0), n, offsets)
    assert len(rows) == offsets[-1]
    for batch in np.split(rows, offsets[1:-1]):
        assert len(set(batch.tolist())) == len(batch)
    counts = np.bincount(rows, minlength=n)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("newer", [False, True])
def test_products_are_float32_whatever_is_set(helpers, newer):
    """bfloat16 products, where the machine has them, would be off in the third digit."""
    pairs = unguarded_pairs(helpers.clustered(1024, d=384), "cosine", 0.05, Runtime(device="cpu"))
    matmul = torch.backends.mkldnn.matmul
    if newer and not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has the older setting only")
    arguments = pairs, 8, Runtime(), lambda _: None
    expected = global_statistics(*arguments)[0].log_sum
    try:
        if newer:
            matmul.fp32_precision = "bf16"
        else:
            torch.set_float32_matmul_precision("medium")
        found = global_statistics(*arguments)[0].log_sum
        assert not newer or matmul.fp32_precision == "bf16"
        assert newer or torch.get_float32_matmul_precision() == "medium"
    finally:
        if newer:
            matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
    assert found.tolist() == expected.tolist()
