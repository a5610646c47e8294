"""A united with its transpose, against SciPy."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.graph import csr


def in_parts(indptr, indices):
    """As on a device, a few entries at a time."""
    return csr._union_torch(indptr, indices, at_once=100)


UNIONS = (csr.union_with_transpose, csr._union_torch, in_parts)


@st.composite
def matrices(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.random((n, n)) < draw(st.sampled_from((0.0, 0.02, 0.2, 0.9)))
    dense[rng.random(n) < 0.3] = False  # empty rows
    np.fill_diagonal(dense, False)
    return dense


@pytest.mark.parametrize("union", UNIONS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@settings(max_examples=50)
@given(matrix=matrices())
def test_equals_dense(union, index, matrix):
    rows, columns = np.nonzero(matrix | matrix.T)
    parts = np.append(0, matrix.sum(1).cumsum()), np.nonzero(matrix)[1].astype(index)
    given_parts = [torch.from_numpy(part) for part in parts]
    before = [part.clone() for part in given_parts]
    indptr, indices = union(*given_parts)
    assert indptr.dtype == torch.int64
    assert indices.dtype == given_parts[1].dtype
    assert np.array_equal(np.repeat(np.arange(len(matrix)), indptr.diff()), rows)
    assert np.array_equal(indices, columns)
    assert all(torch.equal(one, other) for one, other in zip(before, given_parts, strict=True))


@pytest.mark.parametrize("union", UNIONS)
def test_equals_scipy(union):
    rng = np.random.default_rng(0)
    dense = rng.random((500, 500), np.float32) * (rng.random((500, 500)) < 0.02)
    np.fill_diagonal(dense, 0)
    matrix = scipy.sparse.csr_array(dense)
    expected = matrix.maximum(matrix.T).tocsr()
    expected.sort_indices()
    indptr, indices = union(
        torch.from_numpy(matrix.indptr).long(), torch.from_numpy(matrix.indices)
    )
    assert np.array_equal(indptr, expected.indptr)
    assert np.array_equal(indices, expected.indices)


@pytest.mark.parametrize("union", UNIONS)
def test_no_edges(union):
    indptr, indices = union(torch.zeros(4, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
    assert indptr.tolist() == [0, 0, 0, 0]
    assert len(indices) == 0


def test_row_of_entry():
    assert csr.row_of_entry(torch.tensor([0, 2, 2, 3])).tolist() == [0, 0, 2]
