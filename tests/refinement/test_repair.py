"""Rows that must not meet, moved apart: what is left is counted by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.data.duplicates import first_equals, repeated_codes
from batchplan.refinement import repair, repair_rows, rounds


def repaired(case, rows, offsets):
    made, left = repair_rows(rows, offsets, case.objective(), case.runtime)
    assert np.array_equal(np.sort(made), np.sort(rows))
    return made, left


def broken(case, rows, offsets, S=None):
    S = case.similarities() if S is None else S
    return case.pairs(rows, offsets, case.together() | case.alike(S))


def sorted_by(codes, batch_size):
    """The worst there is: the rows of a group side by side."""
    n = len(codes)
    return np.argsort(codes, kind="stable"), np.append(np.arange(0, n, batch_size), n)


@pytest.mark.parametrize("batch_size", [4, 8, 16])
@pytest.mark.parametrize("seed", range(3))
def test_groups_with_room_are_all_parted(clusters, batch_size, seed):
    """No group has more rows than a quarter of the batches."""
    case = clusters(240, seed=seed)
    rng = np.random.default_rng(seed)
    most = max(2, 240 // batch_size // 4)
    codes = rng.permutation(np.repeat(np.arange(240), rng.integers(1, most + 1, 240))[:240])
    case = case.but(groups=(codes,))
    rows, offsets = sorted_by(codes, batch_size)
    assert broken(case, rows, offsets) > 100
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) == 0


def test_batches_give_up(clusters, monkeypatch):
    """With a limit that cannot be kept, no batch seeks others after 16 meetings in vain."""
    case = clusters(640)
    case = case.but(ceilings=np.quantile(case.similarities(), 0.4, axis=1))
    rows, offsets = case.cut(8)
    failed, most = np.zeros(80, int), []

    def improve_round(*arguments):
        made = rounds.improve_round(*arguments)
        pairs, changed = arguments[2], made[1]
        most.append(failed[pairs[:, 0]].max())
        failed[pairs] += 1
        failed[np.unique(pairs[changed])] = 0
        return made

    monkeypatch.setattr(repair, "improve_round", improve_round)
    _, left = repaired(case, rows, offsets)
    assert left > 0
    assert max(most) == 15


def test_two_kinds_of_groups(clusters):
    n = 240
    case = clusters(n).but(groups=(np.arange(n) // 4, np.random.default_rng(0).permutation(n) // 5))
    rows, offsets = sorted_by(case.groups[0], 8)
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) == 0


def shares(codes, rows, offsets):
    """The fewest and the most rows of each group in a batch, and how many there are."""
    batches = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for code in range(codes.max() + 1):
        own = np.bincount(batches[codes[rows] == code], minlength=len(offsets) - 1)
        yield own.min(), own.max(), own.sum()


@pytest.mark.parametrize(
    "sizes", [[12] * 10, [15] * 8, [15, 30, 40], [30] * 4, [14, 16, 90], [119], [120]]
)
@pytest.mark.parametrize("seed", range(3))
def test_large_groups_are_spread_evenly(clusters, sizes, seed):
    """15 batches of 8: a group of more than 15 rows has the floor or the ceiling of its share."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    codes = np.append(codes, np.full(120 - len(codes), -1))
    case = clusters(120, seed=seed).but(groups=(codes,))
    rows, offsets = sorted_by(codes, 8)
    before = broken(case, rows, offsets)
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets)
    for fewest, most, size in shares(codes, made, offsets):
        assert (fewest, most) == (size // 15, -(-size // 15))
    if sizes == [120]:
        assert left == before == 15 * 28


def test_large_groups_of_each_kind(clusters):
    """Batches of two kinds, whose rows are not exchanged: each has its groups."""
    kinds = np.repeat([0, 1], [80, 160])
    codes = np.concatenate([np.repeat([0, -1], [10, 70]), np.repeat([1, 0, -1], [20, 25, 115])])
    case = clusters(240).but(groups=(codes,), kinds=kinds)
    rows = np.concatenate([np.argsort(-codes[:80]), 80 + np.argsort(-codes[80:])])
    made, left = repaired(case, rows, np.arange(0, 241, 8))
    assert left == 5  # 25 rows in 20 batches
    first, second = made[:80], made[80:]
    assert next(shares(codes, first, np.arange(0, 81, 8)))[:2] == (1, 1)
    assert [own[:2] for own in shares(codes, second, np.arange(0, 161, 8))] == [(1, 2), (1, 1)]


@pytest.mark.parametrize("paired", [False, True])
def test_equal_rows_are_kept_apart(clusters, paired):
    case = clusters(160, paired=paired)
    case.x[80:] = case.x[:80]
    case.x[1] = case.x[0]
    if paired:
        case.y[10:20] = case.y[30:40]
    sides = (case.embeddings().x, case.embeddings().y)[: 1 + paired]
    case = case.but(groups=tuple(repeated_codes(first_equals(side)) for side in sides))
    assert int(case.together().sum()) // 2 == 81 + 10 * paired
    rows, offsets = sorted_by(case.groups[0], 8)
    assert broken(case, rows, offsets) > 30
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) == 0


def limited(case, share):
    """So that no pair is nearly at its limit."""
    S = case.similarities()
    others = S[~np.eye(len(S), dtype=bool)]
    return case.but(ceilings=np.full(len(S), np.quantile(others, share)) + 1e-6)


def test_similar_rows_are_parted_where_they_have_no_penalty(clusters):
    case = limited(clusters(200, clusters=25), 0.97)
    order = np.argsort(np.argmax(case.similarities()[:, :25], axis=1), kind="stable")
    offsets = np.arange(0, 201, 8)
    before = broken(case, order, offsets)
    made, left = repaired(case, order, offsets)
    assert before > 100
    assert left == broken(case, made, offsets) < before / 10
    priced = case.but(penalty=1.0)
    made, left = repaired(priced, order, offsets)
    assert np.array_equal(made, order)  # these are the loss's to weigh
    assert left == before


def test_groups_are_parted_though_similar_rows_have_a_penalty(clusters):
    codes = np.arange(120) // 4
    case = limited(clusters(120), 0.9).but(groups=(codes,), penalty=1.0)
    rows, offsets = sorted_by(codes, 8)
    made, left = repaired(case, rows, offsets)
    assert case.pairs(made, offsets, case.together()) == 0
    assert left == case.pairs(made, offsets, case.alike(case.similarities())) > 0


def test_kinds_stay_where_they_are(clusters):
    kinds = np.random.default_rng(0).integers(0, 2, 160)
    case = clusters(160).but(groups=(np.arange(160) // 3,), kinds=kinds)
    rows, offsets = sorted_by(case.groups[0], 8)
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) == 0
    for one, other in zip(*(np.split(r, offsets[1:-1]) for r in (rows, made)), strict=True):
        assert kinds[one].sum() == kinds[other].sum()


@pytest.mark.parametrize("batch_size", [8, 16])
def test_batches_of_many_kinds(clusters, batch_size):
    """50 kinds of two batches each: a batch has rows to exchange with one other only."""
    n = 100 * batch_size
    kinds = np.random.default_rng(0).permutation(np.arange(n) // (2 * batch_size))
    case = clusters(n).but(kinds=kinds)
    rows = np.argsort(kinds, kind="stable")
    groups = np.empty(n, np.int64)
    groups[rows] = np.arange(n) // 2
    case, offsets = case.but(groups=(groups,)), np.arange(101) * batch_size
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) == 0
    assert np.array_equal(kinds[made], kinds[rows])


def test_rows_that_are_in_several_batches(clusters):
    case = clusters(60).but(groups=(np.arange(60) // 3,))
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.choice(60, 8, replace=False) for _ in range(15)])
    offsets = np.arange(16) * 8
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) < broken(case, rows, offsets) / 4
    assert all(len(set(one.tolist())) == 8 for one in np.split(made, offsets[1:-1]))


def test_nothing_broken(clusters):
    case = clusters(64).but(groups=(np.full(64, -1),))
    rows, offsets = case.cut(8)
    made, left = repaired(case, rows, offsets)
    assert left == 0
    assert np.array_equal(made, rows)


def test_a_single_batch(clusters):
    case = clusters(12).but(groups=(np.arange(12) // 3,))
    rows, offsets = np.arange(12), np.array([0, 12])
    made, left = repaired(case, rows, offsets)
    assert np.array_equal(made, rows)
    assert left == 12


def test_threads_and_repeats_do_not_matter(use_threads, clusters):
    codes = np.random.default_rng(0).permutation(1200) // 6
    case = limited(clusters(1200), 0.99).but(groups=(codes,))
    rows, offsets = sorted_by(codes, 8)
    found = set()
    for threads in (1, 2, 3, 1):
        use_threads(threads)
        made, left = repaired(case, rows, offsets)
        found.add((made.tobytes(), left))
    assert len(found) == 1


@settings(max_examples=60)
@given(st.data())
def test_any_groups(clusters, data):
    """Never more broken pairs than before, and as many as it says."""
    n, seed = data.draw(st.integers(2, 50)), data.draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    offsets = np.minimum(np.append(0, np.cumsum(sizes)), n)
    offsets = np.unique(offsets)
    codes = rng.integers(-1, data.draw(st.integers(1, n)), (data.draw(st.integers(1, 2)), n))
    case = clusters(n, seed=seed).but(groups=tuple(codes))
    rows = rng.permutation(n)
    made, left = repaired(case, rows, offsets)
    assert left == broken(case, made, offsets) <= broken(case, rows, offsets)
