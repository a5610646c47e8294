"""Terms of a block: exponentials over a factor of the block, or of each sum where it must be."""

import numpy as np
import pytest

from batchplan.refinement.blocks import UNDERFLOW
from batchplan.refinement.terms import fill_terms, similarities_of
from tests.dense import unit

NO_MASK = np.empty((0, 0), np.uint8)


def filled(similarities, tau, mask=NO_MASK):
    m = similarities.shape[1]
    terms = np.full((2, m, m), np.nan, np.float32)
    fill_terms(similarities, mask, tau, terms)
    return terms


def random_similarities(m, ways):
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, 6))
    y = x + rng.standard_normal((m, 6))
    pairs = unit(x) @ unit(y).T
    return np.array([pairs + 0.1, pairs][2 - ways :], np.float32)


def random_mask(m, share=0.3):
    mask = np.triu(np.random.default_rng(1).random((m, m)) < share, 1)
    return (mask | mask.T).astype(np.uint8)


@pytest.mark.parametrize("tau", [0.02, 0.05, 1.0])
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("m", [2, 15, 16, 33, 128])
def test_one_factor_for_both_directions(m, ways, tau):
    similarities = random_similarities(m, ways)
    terms = filled(similarities, tau)
    exact = np.exp(np.array([similarities[0].T, similarities[-1]], np.float64) / tau)
    ratios = terms / exact
    assert np.allclose(ratios, ratios[0, 0, 0], rtol=1e-5, atol=0)
    assert ways == 2 or np.array_equal(terms[0], terms[1].T)


def test_similarities_of_blocks(clusters):
    case = clusters(40)
    members = np.random.default_rng(0).permutation(40).reshape(4, 10)
    similarities, largest = similarities_of(case.objective(), members)
    assert similarities.shape == (4, 1, 10, 10)
    S = case.similarities()
    for both, rows in zip(zip(similarities, largest, strict=True), members, strict=True):
        for block in both:
            assert np.allclose(block, S[np.ix_(rows, rows)], atol=1e-6)


@pytest.mark.parametrize("spread", [50.0, 119.0, 121.0, 1e4, 1e12])
def test_own_terms_never_underflow(spread):
    """Up to the spread that one factor can hold; beyond it the largest term of each sum is 1."""
    similarities = np.random.default_rng(0).random((1, 6, 6)).astype(np.float32)
    similarities[0, 0, 0], similarities[0, 1, 2] = 0, 1
    terms = filled(similarities, 1 / spread)
    assert np.isfinite(terms).all()
    if spread <= 120:
        assert terms.diagonal(axis1=1, axis2=2).min() > UNDERFLOW
    assert (terms.max(axis=1) == 1).all() == (spread > 120)


def test_similarities_that_float32_cannot_hold_spoil_only_their_own_sums():
    similarities = random_similarities(6, 1)
    similarities[0, 2, 3] = np.inf
    terms = filled(similarities, 1.0)
    assert np.array_equal((terms.max(axis=1) == 1).T, np.arange(6)[:, None] != [2, 3])


@pytest.mark.parametrize("masked", [False, True])
def test_a_factor_for_each_sum(masked):
    rng = np.random.default_rng(1)
    similarities = (1000 * rng.standard_normal((9, 9))).astype(np.float32)
    mask = random_mask(9) if masked else NO_MASK
    terms = filled(similarities[None], 1.0, mask)
    for one, logits in zip(terms, (similarities.T, similarities), strict=True):
        shown = np.where(mask > 0, -np.inf, logits) if masked else logits
        assert np.allclose(one, np.exp(shown - shown.max(axis=0)), atol=1e-7)
        assert (one.max(axis=0) == 1).all()


def test_pairs_that_do_not_count_have_no_terms():
    mask = random_mask(20) * np.uint8(3)
    terms = filled(random_similarities(20, 1), 0.05, mask)
    for one in terms:
        assert np.array_equal(one == 0, mask > 0)


def test_a_similarity_of_minus_infinity_has_no_term():
    similarities = random_similarities(20, 2)
    similarities[1][~np.eye(20, dtype=bool)] = -np.inf
    terms = filled(similarities, 0.05)
    assert np.array_equal(terms[1] > 0, np.eye(20, dtype=bool))
    assert (terms[0] > 0).all()


def test_terms_far_below_the_others_vanish():
    similarities = np.full((1, 4, 4), -60, np.float32)
    np.fill_diagonal(similarities[0], 0)
    similarities[0, 0, 1] = -40
    terms = filled(similarities, 0.5)  # logits of 0, -80 and -120
    assert (terms.diagonal(axis1=1, axis2=2) == 1).all()
    assert terms[1, 0, 1] == pytest.approx(np.exp(-80), rel=1e-5)
    assert (terms[1][similarities[0] == -60] == 0).all()
