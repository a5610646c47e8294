"""Terms of a block: exponentials over a factor of the block, or of each sum where it must be."""

import numpy as np
import pytest
import torch

from batchplan.refinement.blocks import UNDERFLOW
from batchplan.refinement.terms import fill_terms, hide, similarities_of, terms_of


def shares(terms):
    """float64: each term over its sum, which no factor of the sum changes."""
    terms = terms.astype(np.float64)
    return terms / terms.sum(axis=0)


def expected(logits):
    """The shares of the sums of x to y and of y to x."""
    return [
        shares(np.exp(one - one.max(axis=0))) for one in (logits.T, logits)
    ]  # a sum runs over the columns of the first index


@pytest.mark.parametrize("tau", [0.02, 0.05, 1.0])
def test_one_factor_for_both_directions(clusters, tau):
    case = clusters(40).but(tau=tau)
    members = np.random.default_rng(0).permutation(40).reshape(4, 10)
    similarities, largest = similarities_of(case.objective(), members)
    assert similarities.shape == (4, 1, 10, 10)
    S = case.similarities()
    for block, rows in zip(largest.numpy(), members, strict=True):
        assert np.allclose(block, S[np.ix_(rows, rows)], atol=1e-6)
    terms, wide = terms_of(similarities, tau)
    assert not wide.any()
    for block, both in zip(largest.double().numpy(), terms.numpy(), strict=True):
        assert np.array_equal(both[0], both[1].T)
        for one, other in zip(both, expected(block / tau), strict=True):
            assert np.allclose(shares(one), other, rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("spread", [50.0, 119.0, 121.0, 1e4, 1e12])
def test_own_terms_never_underflow(spread):
    """Up to the spread that one factor can hold; beyond it the block is said to be wide."""
    rng = np.random.default_rng(0)
    similarities = rng.random((1, 1, 6, 6)).astype(np.float32)
    similarities[0, 0, 0, 0], similarities[0, 0, 1, 2] = 0, 1
    terms, wide = terms_of(torch.from_numpy(similarities), 1 / spread)
    assert wide.tolist() == [spread > 120]
    if spread <= 120:
        assert torch.isfinite(terms).all()
        assert terms.diagonal(dim1=2, dim2=3).min() > UNDERFLOW


def test_similarities_that_float32_cannot_hold_are_wide():
    similarities = torch.full((1, 1, 3, 3), torch.inf)
    assert terms_of(similarities, 1.0)[1].tolist() == [True]


@pytest.mark.parametrize("masked", [False, True])
def test_a_factor_for_each_sum(masked):
    rng = np.random.default_rng(1)
    similarities = (1000 * rng.standard_normal((9, 9))).astype(np.float32)
    mask = np.triu(rng.random((9, 9)) < 0.3, 1)
    mask = (mask | mask.T).astype(np.uint8) if masked else np.empty((0, 0), np.uint8)
    terms = np.empty((2, 9, 9), np.float32)
    fill_terms(similarities[None], mask, 1.0, terms)
    for one, logits in zip(terms, (similarities.T, similarities), strict=True):
        shown = np.where(mask > 0, -np.inf, logits) if masked else logits
        assert np.allclose(one, np.exp(shown - shown.max(axis=0)), atol=1e-7)
        assert (one.max(axis=0) == 1).all()


def test_hidden_terms_are_nothing():
    terms = np.ones((2, 3, 3), np.float32)
    mask = np.array([[0, 1, 0], [1, 0, 4], [0, 4, 0]], np.uint8)
    hide(mask, terms)
    assert np.array_equal(terms[0], mask == 0)
    assert np.array_equal(terms[1], mask == 0)
