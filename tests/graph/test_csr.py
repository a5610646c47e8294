"""A united with its transpose, against SciPy."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.graph import csr


@st.composite
def matrices(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.random((n, n)) < draw(st.sampled_from((0.0, 0.02, 0.2, 0.9)))
    dense[rng.random(n) < 0.3] = False  # empty rows
    np.fill_diagonal(dense, False)
    return dense


@pytest.mark.parametrize("index", [np.int32, np.int64])
@settings(max_examples=50)
@given(matrix=matrices())
def test_equals_dense(index, matrix):
    rows, columns = np.nonzero(matrix | matrix.T)
    parts = np.append(0, matrix.sum(1).cumsum()), np.nonzero(matrix)[1].astype(index)
    before = [part.copy() for part in parts]
    indptr, indices = csr.union_with_transpose(*parts)
    assert indptr.dtype == np.int64
    assert indices.dtype == index
    assert np.array_equal(np.repeat(np.arange(len(matrix)), np.diff(indptr)), rows)
    assert np.array_equal(indices, columns)
    assert all(np.array_equal(one, other) for one, other in zip(before, parts, strict=True))


def test_equals_scipy():
    rng = np.random.default_rng(0)
    dense = rng.random((500, 500), np.float32) * (rng.random((500, 500)) < 0.02)
    np.fill_diagonal(dense, 0)
    matrix = scipy.sparse.csr_array(dense)
    expected = matrix.maximum(matrix.T).tocsr()
    expected.sort_indices()
    indptr, indices = csr.union_with_transpose(matrix.indptr.astype(np.int64), matrix.indices)
    assert np.array_equal(indptr, expected.indptr)
    assert np.array_equal(indices, expected.indices)


def test_no_edges():
    indptr, indices = csr.union_with_transpose(np.zeros(4, np.int64), np.empty(0, np.int32))
    assert indptr.tolist() == [0, 0, 0, 0]
    assert len(indices) == 0
