"""Which rows and how many go into which batch."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.planners.partition.dealing import deal, interleaved, shares_of, take_turns


def generator(seed=0):
    return np.random.default_rng(seed)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(2, 12), st.integers(0, 99))
def test_shares(totals, size, seed):
    kinds = generator(seed).permutation(np.repeat(np.arange(len(totals)), totals))
    n = len(kinds)
    sizes = np.array([size] * (n // size) + [n % size] * (n % size > 0))
    found = shares_of(kinds, sizes)
    assert found.shape == (len(totals), len(sizes))
    assert found.sum(axis=1).tolist() == totals
    assert found.sum(axis=0).tolist() == sizes.tolist()
    share = np.outer(totals, sizes) / n
    assert np.abs(found - share).max() < 2


@given(
    st.integers(2, 16), st.integers(1, 9), st.sampled_from([0, 1, -1]), st.integers(1, 6),
    st.lists(st.integers(1, 30), min_size=1, max_size=4), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_every_row_is_dealt_once(size, full, last, count, shares, mixed, seed):
    """As many to each mega-batch as its batches take, and to each its share of each kind."""
    sizes = np.array([size] * full + [last % size] * (last % size > 0))
    n = sizes.sum()
    rows = np.sort(generator(seed).choice(3 * n, n, replace=False))
    kinds = generator(seed).choice(len(shares), 3 * n, p=np.array(shares) / sum(shares))
    kinds = np.unique(kinds, return_inverse=True)[1]
    made = deal(rows, sizes, count, generator(seed), kinds if mixed else None)
    assert len(made) == max(1, min(count, len(sizes) // 2))
    assert np.array_equal(np.concatenate([part for _, part in made]), sizes)
    assert np.array_equal(np.sort(np.concatenate([own for own, _ in made])), rows)
    assert np.ptp([len(part) for _, part in made]) <= 1
    for own, part in made:
        assert (np.diff(own) > 0).all()
        assert len(own) == part.sum()
        if mixed:
            held = np.bincount(kinds[own], minlength=kinds.max() + 1)
            share = np.bincount(kinds[rows], minlength=kinds.max() + 1) * len(own) / n
            assert np.abs(held - share).max() < 2


def test_mega_batches_are_drawn_at_random():
    sizes = np.full(100, 10)
    one, same, other = (deal(np.arange(1000), sizes, 4, generator(seed)) for seed in (0, 0, 1))
    for k in range(4):
        assert np.array_equal(one[k][0], same[k][0])
        shared = len(np.intersect1d(one[k][0], other[k][0]))
        assert 35 < shared < 90  # 62.5 by chance, with a standard deviation of 5.9
        assert abs(one[k][0].mean() - 499.5) < 60


def test_one_mega_batch_has_all_rows_and_draws_nothing():
    rows = np.arange(20)
    for count, sizes in ((1, np.full(5, 4)), (9, np.array([10, 10]))):
        drawing = generator()
        assert deal(rows, sizes, count, drawing)[0][0] is rows
        assert drawing.random() == generator().random()


def test_shares_of_many_small_kinds():
    totals, size = [300] + [1] * 60 + [2] * 60, 16
    found = shares_of(np.repeat(np.arange(len(totals)), totals), np.full(30, size))
    assert np.abs(found - np.outer(totals, np.full(30, size)) / 480).max() < 2


def test_shares_does_not_look_at_the_order():
    kinds = generator().permutation(np.repeat([0, 1, 2], [20, 10, 2]))
    sizes = np.full(4, 8)
    assert np.array_equal(shares_of(kinds, sizes), shares_of(np.sort(kinds), sizes))
    assert shares_of(kinds, sizes)[:2].tolist() != [[20, 0, 0, 0], [10, 0, 0, 0]]
    assert (shares_of(kinds, sizes)[0] == 5).all()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any))
def test_interleaved(counts):
    order = interleaved(counts)
    assert np.array_equal(np.sort(order), np.arange(sum(counts)))
    sources = np.repeat(np.arange(len(counts)), counts)[order]
    for source, count in enumerate(counts):
        assert (np.diff(order[sources == source]) == 1).all()
        so_far = np.cumsum(sources == source)
        even = count * np.arange(1, sum(counts) + 1) / sum(counts)
        assert np.abs(so_far - even).max() <= 1 + len(counts) / 2


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ([2, 2], [0, 2, 1, 3]),
        ([4, 1], [0, 1, 4, 2, 3]),
        ([0, 3], [0, 1, 2]),
        ([1, 1, 1], [0, 1, 2]),
    ],
)
def test_interleaved_by_hand(counts, wanted):
    assert interleaved(counts).tolist() == wanted


def test_batches_of_sources_take_turns():
    rows = np.arange(17)
    sizes = [np.array([3, 3, 1]), np.array([3]), np.array([3, 3, 1])]
    found, offsets = take_turns(rows, sizes, None)
    batches = [found[a:b].tolist() for a, b in pairwise(offsets)]
    wanted = [[0, 1, 2], [10, 11, 12], [3, 4, 5], [7, 8, 9], [13, 14, 15], [6], [16]]
    assert batches == wanted
    found, offsets = take_turns(rows, sizes, generator(1))
    mixed = [found[a:b].tolist() for a, b in pairwise(offsets)]
    assert sorted(mixed) == sorted(wanted)
    assert mixed[-2:] == wanted[-2:]
    shuffled = {tuple(map(tuple, take_turns(rows, sizes, generator(s))[0:1])) for s in range(9)}
    assert len(shuffled) > 1
