"""A united with its transpose, against SciPy."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.graph import csr


def in_parts(indptr, indices, weights):
    """As on a device, a few entries at a time."""
    return csr._union_torch(indptr, indices, weights, at_once=100)


UNIONS = (csr.union_with_transpose, csr._union_torch, in_parts)


@st.composite
def matrices(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.random((n, n)) < draw(st.sampled_from((0.0, 0.02, 0.2, 0.9)))
    dense[rng.random(n) < 0.3] = False  # empty rows
    np.fill_diagonal(dense, False)
    values = draw(st.sampled_from(("positive", "negative", "both", "ties")))
    weights = rng.random((n, n)) + 0.1
    if values == "negative":
        weights = -weights
    if values == "both":
        weights -= 0.6
    if values == "ties":
        weights = rng.integers(1, 3, (n, n))
    return dense, weights.astype(np.float32)


def parts(dense, weights, index):
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], dense.sum(1).cumsum()])
    arrays = indptr, columns.astype(index), weights[rows, columns]
    return tuple(torch.from_numpy(array) for array in arrays)


@pytest.mark.parametrize("union", UNIONS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@settings(max_examples=50)
@given(matrix=matrices())
def test_equals_dense(union, index, matrix):
    dense, weights = matrix
    n = len(dense)
    held = np.where(dense, weights, -np.inf)
    expected = np.maximum(held, held.T)
    rows, columns = np.nonzero(dense | dense.T)
    for values in (True, False):
        given_parts = parts(dense, weights, index)
        before = [part.clone() for part in given_parts]
        indptr, indices, merged = union(*given_parts[:2], given_parts[2] if values else None)
        assert indptr.dtype == torch.int64
        assert indices.dtype == given_parts[1].dtype
        assert np.array_equal(np.repeat(np.arange(n), indptr.diff()), rows)
        assert np.array_equal(indices, columns)
        assert (merged is not None) == values
        assert not values or np.array_equal(merged, expected[rows, columns])
        assert all(torch.equal(one, other) for one, other in zip(before, given_parts, strict=True))


@pytest.mark.parametrize("union", UNIONS)
def test_equals_scipy(union):
    rng = np.random.default_rng(0)
    dense = rng.random((500, 500), np.float32) * (rng.random((500, 500)) < 0.02)
    np.fill_diagonal(dense, 0)
    matrix = scipy.sparse.csr_array(dense)
    expected = matrix.maximum(matrix.T).tocsr()  # the larger, as no weight is below zero
    expected.sort_indices()
    held = [torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)]
    indptr, indices, weights = union(held[0].long(), *held[1:])
    assert np.array_equal(indptr, expected.indptr)
    assert np.array_equal(indices, expected.indices)
    assert np.array_equal(weights, expected.data)


@pytest.mark.parametrize("union", UNIONS)
def test_no_edges(union):
    indptr, indices, weights = union(
        torch.zeros(4, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0)
    )
    assert indptr.tolist() == [0, 0, 0, 0]
    assert len(indices) == len(weights) == 0


def test_row_of_entry():
    assert csr.row_of_entry(torch.tensor([0, 2, 2, 3])).tolist() == [0, 0, 2]
