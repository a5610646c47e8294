"""The store of candidates and its exact cut."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchplan.planners.papers.gcbs import edge_store
from batchplan.planners.papers.gcbs.edge_store import (
    EdgeStore,
    _cut_numpy,
    _cut_torch,
    kth_largest,
)
from batchplan.planners.papers.gcbs.scan import EdgeBlock


def cut_in_parts(*store):
    """As on a device, a few scores at a time."""
    with mock.patch.object(edge_store, "_AT_ONCE", 3):
        return _cut_torch(*store)


CUTS = (_cut_numpy, _cut_torch, cut_in_parts)
SCORES = st.one_of(
    st.sampled_from((0.0, -0.0, 1.0, -1.0, np.inf, 2.0**-149, -(2.0**-149), 2.0**127)),
    st.floats(width=32, allow_nan=False),
)


def reference(scores, counts, edges):
    """Which candidates stay: the largest, of equal ones the first."""
    order = sorted(range(len(scores)), key=lambda e: (-scores[e], e))[:edges]
    rows = np.repeat(np.arange(len(counts)), counts)
    kept = sorted(order)
    return kept, np.bincount(rows[kept], minlength=len(counts)), scores[order[-1]]


@pytest.mark.parametrize("cut", CUTS)
@given(problem=st.data())
def test_cut(cut, problem):
    counts = problem.draw(st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any))
    total = sum(counts)
    scores = problem.draw(st.lists(SCORES, min_size=total, max_size=total))
    edges = problem.draw(st.integers(1, total))
    kept, kept_counts, smallest = reference(scores, counts, edges)
    columns = torch.arange(total, dtype=torch.int32)
    values = torch.tensor(scores, dtype=torch.float32)
    rows = torch.tensor(counts)
    assert cut(values, columns, rows, edges) == smallest
    assert columns[:edges].tolist() == kept
    assert values[:edges].tolist() == [scores[e] for e in kept]
    assert rows.tolist() == kept_counts.tolist()


def block(first_row, scores, certain=0):
    counts = torch.tensor([len(row) for row in scores])
    flat = torch.tensor([score for row in scores for score in row])
    return EdgeBlock(first_row, counts, torch.arange(len(flat), dtype=torch.int32), flat, certain)


def test_fills_up_and_is_cut_again():
    store = EdgeStore(4, 5, torch.int32, torch.device("cpu"))
    assert store.add(block(0, [[3.0, 1.0], [2.0]]))
    assert not store.add(block(2, [[9.0, 9.0, 9.0]]))  # no room: nothing of it is stored
    assert store.stored == 3
    assert store.cut(2) == 2.0
    assert store.add(block(2, [[2.0, torch.inf], [2.5]], certain=1))
    assert (store.stored, store.certain) == (5, 1)
    assert store.cut(2) == 3.0
    indptr, columns, weights = store.finish(True)
    assert indptr.tolist() == [0, 1, 1, 2, 2]
    assert columns.tolist() == [0, 1]
    assert weights.tolist() == [3.0, torch.inf]
    assert store.finish(False)[2] is None


def test_ties_of_later_rows_lose():
    store = EdgeStore(3, 9, torch.int32, torch.device("cpu"))
    store.add(block(0, [[1.0, 1.0], [1.0, 2.0], [1.0, 2.0]]))
    assert store.cut(3) == 1.0
    assert store.finish(False)[0].tolist() == [0, 1, 2, 3]


@given(st.lists(SCORES, min_size=1, max_size=30))
def test_kth_largest(values):
    falling = sorted(values, reverse=True)
    tensor = torch.tensor(values, dtype=torch.float32)
    assert [kth_largest(tensor, k + 1) for k in range(len(values))] == falling


def test_a_row_may_come_in_several_blocks():
    store = EdgeStore(2, 9, torch.int32, torch.device("cpu"))
    store.add(block(0, [[3.0]]))
    store.add(block(0, [[1.0, 2.0], [4.0]]))
    assert store.room == 5
    assert store.cut(3) == 2.0
    assert store.finish(False)[0].tolist() == [0, 2, 3]
