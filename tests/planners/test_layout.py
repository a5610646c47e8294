"""Which rows and how many go into which batch."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchplan.planners.partition.batches import interleaved, take_turns
from batchplan.planners.partition.dealing import deal
from batchplan.planners.partition.layout import make_layout, mixed_evenly


def generator(seed=0):
    return np.random.default_rng(seed)


@st.composite
def layouts(draw):
    """The batches of some rows, the last of them short, of clusters or not."""
    size = draw(st.integers(2, 16))
    sizes = [size] * draw(st.integers(0, 8)) + draw(st.sampled_from(([], [1], [size - 1])))
    if not sizes:
        sizes = [size]
    fraction = draw(st.sampled_from((0.0, 0.25, 0.5, 0.99, 1.0)))
    left = size - round(fraction * size)
    divisors = [k for k in range(2, left + 1) if left % k == 0]
    cluster = draw(st.sampled_from([None, *divisors]))
    return np.array(sizes), fraction, cluster


@given(layouts())
def test_sizes_add_up_and_all_rows_are_there_once(problem):
    sizes, fraction, cluster = problem
    made = make_layout(sizes, generator(), cluster_size=cluster, random_fraction=fraction)
    n = sizes.sum()
    assert sorted([*made.rows, *made.drawn]) == list(range(n))
    assert (np.diff(made.rows) > 0).all()
    assert made.quotas.shape == (1, len(made.units))
    assert made.units.sum() == len(made.rows)
    assert (made.units > 0).all()
    assert (np.diff(made.units) <= 0).all()
    random = np.bincount(made.batch_of_drawn, minlength=len(sizes))
    assert random.tolist() == [round(size * fraction) for size in sizes.tolist()]
    held = np.bincount(made.batch_of_unit, weights=made.units, minlength=len(sizes))
    assert (held + random).tolist() == sizes.tolist()
    assert np.array_equal(np.sort(made.compose(made.rows)), np.arange(n))
    if cluster is None:
        assert len(set(made.batch_of_unit.tolist())) == len(made.units)
    else:
        short = [size - round(size * fraction) for size in sizes.tolist()]
        assert sorted(made.units.tolist()) == sorted(
            [cluster] * sum(one // cluster for one in short)
            + [one % cluster for one in short if one % cluster]
        )


def test_compose_puts_each_unit_and_each_random_row_into_its_batch():
    made = make_layout(np.array([8, 8, 8]), generator(), cluster_size=2, random_fraction=0.5)
    composed = made.compose(made.rows)
    where = {row: place // 8 for place, row in enumerate(composed.tolist())}
    ends = np.cumsum(made.units)
    for unit, batch in zip(np.split(made.rows, ends[:-1]), made.batch_of_unit, strict=True):
        assert {where[row] for row in unit.tolist()} == {batch}
    for row, batch in zip(made.drawn.tolist(), made.batch_of_drawn.tolist(), strict=True):
        assert where[row] == batch


def test_clusters_are_dealt_at_random():
    sizes = np.full(6, 12)
    found = [
        make_layout(sizes, generator(seed), cluster_size=3).batch_of_unit for seed in (0, 0, 1)
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    assert np.bincount(found[0]).tolist() == [4] * 6
    assert not np.array_equal(found[0], np.sort(found[0]))


def test_random_rows_come_from_all():
    made = make_layout(np.full(100, 10), generator(), random_fraction=0.3)
    assert len(made.drawn) == 300
    assert abs(made.drawn.mean() - 499.5) < 50
    assert np.array_equal(make_layout(np.full(100, 10), generator()).rows, np.arange(1000))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(2, 12), st.integers(0, 99))
def test_mixed_evenly(totals, size, seed):
    kinds = generator(seed).permutation(np.repeat(np.arange(len(totals)), totals))
    n = len(kinds)
    sizes = np.array([size] * (n // size) + [n % size] * (n % size > 0))
    found = mixed_evenly(kinds, sizes)
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
    made = deal(rows, sizes, count, generator(seed), kinds if mixed else None, "pad")
    assert len(made) == max(1, min(count, len(sizes) // 2))
    assert np.array_equal(np.concatenate([one.sizes for one in made]), sizes)
    assert np.array_equal(np.sort(np.concatenate([one.rows for one in made])), rows)
    assert np.ptp([len(one.sizes) for one in made]) <= 1
    for one in made:
        assert one.tail == "pad"
        assert (np.diff(one.rows) > 0).all()
        assert len(one.rows) == one.sizes.sum()
        if mixed:
            held = np.bincount(kinds[one.rows], minlength=kinds.max() + 1)
            share = np.bincount(kinds[rows], minlength=kinds.max() + 1) * len(one.rows) / n
            assert np.abs(held - share).max() < 2


def test_mega_batches_are_drawn_at_random():
    sizes = np.full(100, 10)
    one, same, other = (deal(np.arange(1000), sizes, 4, generator(seed)) for seed in (0, 0, 1))
    for k in range(4):
        assert np.array_equal(one[k].rows, same[k].rows)
        shared = len(np.intersect1d(one[k].rows, other[k].rows))
        assert 35 < shared < 90  # 62.5 by chance, with a standard deviation of 5.9
        assert abs(one[k].rows.mean() - 499.5) < 60


def test_one_mega_batch_has_all_rows_and_draws_nothing():
    rows = np.arange(20)
    for count, sizes in ((1, np.full(5, 4)), (9, np.array([10, 10]))):
        drawing = generator()
        assert deal(rows, sizes, count, drawing)[0].rows is rows
        assert drawing.random() == generator().random()


def test_mixed_evenly_of_many_small_kinds():
    totals, size = [300] + [1] * 60 + [2] * 60, 16
    found = mixed_evenly(np.repeat(np.arange(len(totals)), totals), np.full(30, size))
    assert np.abs(found - np.outer(totals, np.full(30, size)) / 480).max() < 2


def test_mixed_evenly_does_not_look_at_the_order():
    kinds = generator().permutation(np.repeat([0, 1, 2], [20, 10, 2]))
    sizes = np.full(4, 8)
    assert np.array_equal(mixed_evenly(kinds, sizes), mixed_evenly(np.sort(kinds), sizes))
    assert mixed_evenly(kinds, sizes)[:2].tolist() != [[20, 0, 0, 0], [10, 0, 0, 0]]
    assert (mixed_evenly(kinds, sizes)[0] == 5).all()


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
