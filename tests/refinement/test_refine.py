"""Refined batches against the loss of brute force, and what never changes about them."""

from itertools import cycle, product

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.refinement import passes, refine_rows
from batchplan.refinement.kernel import Search

TAUS = (0.01, 0.05, 0.5, 5.0)


def refined(case, rows, offsets, affinity=None, most=3):
    affinity = affinity or case.affinity()
    return refine_rows(rows, offsets, case.objective(), affinity, case.runtime, most)


def with_ceilings(case):
    """About a tenth of all pairs is too similar, and none nearly so."""
    return case.but(ceilings=np.quantile(case.similarities(), 0.9, axis=1))


def with_groups(case):
    groups = np.arange(len(case.x)) // 3
    groups[::7] = -1
    return case.but(groups=(np.random.default_rng(3).permutation(groups),))


def with_judge(case):
    """Another model, of other dimensions, finds other pairs too similar."""
    n = len(case.x)
    sides = np.random.default_rng(6).standard_normal((1 + (case.y is not None), n, 5))
    judge = Embeddings.from_arrays(*sides.astype(np.float32))
    return case.but(judge=judge, ceilings=np.full(n, 0.6))


PLAIN = {"plain": lambda case: case}
MARKED = {"ceilings": with_ceilings, "groups": with_groups}
MARKED["judge"] = with_judge
MARKED["all"] = lambda case: with_groups(with_ceilings(case))
MARKED["groups and judge"] = lambda case: with_groups(with_judge(case))


def check_gain(case, batch_size):
    rows, offsets = case.cut(batch_size)
    made = refined(case, rows, offsets)
    before, after = case.loss(rows, offsets), case.loss(made.rows, offsets)
    assert made.gain == pytest.approx(after - before, rel=1e-4, abs=1e-6 * abs(before))
    assert not np.array_equal(made.rows, rows)
    assert 1 <= made.passes <= 3
    return after - before


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("paired", [True, False])
def test_gain_is_the_rise_of_the_loss(clusters, tau, similarity, paired):
    """130 rows leave a short last batch."""
    case = clusters(130, paired=paired).but(tau=tau, similarity=similarity)
    assert check_gain(case, 16) > 0


WAYS = zip(product(MARKED, (True, False), (0.05, 0.5)), cycle((np.inf, 0.0, 2.0)), strict=False)


@pytest.mark.parametrize(
    ("marks", "paired", "tau", "penalty"), [(*ways, penalty) for ways, penalty in WAYS]
)
def test_gain_where_some_pairs_do_not_count(clusters, marks, paired, penalty, tau):
    check_gain(MARKED[marks](clusters(130, paired=paired).but(tau=tau, penalty=penalty)), 16)


@pytest.mark.parametrize("marks", PLAIN | MARKED)
def test_batches_of_many_sizes(clusters, marks):
    case = (PLAIN | MARKED)[marks](clusters(120))
    sizes = np.array([2, 30, 7, 7, 1, 24, 2, 30, 17])
    rows, offsets = case.cut(120)[0], np.append(0, sizes.cumsum())
    made = refined(case, rows, offsets)
    rise = case.loss(made.rows, offsets) - case.loss(rows, offsets)
    assert made.gain == pytest.approx(rise, rel=1e-4)
    assert sorted(made.rows) == list(range(120))


def test_more_passes_and_harder_searches_gain_more(clusters, monkeypatch):
    case = clusters(400, spread=0.8)
    rows, offsets = case.cut(16)
    gains = [refined(case, rows, offsets, most=most).gain for most in (1, 2, 8)]
    assert gains == sorted(gains)
    monkeypatch.setattr(passes, "Search", lambda: Search(top=1, patience=0))
    assert refined(case, rows, offsets, most=1).gain < gains[0]


def test_planted_batches_come_together(case):
    """8 tight clusters of 16: from random batches more than half of the way."""
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(128) % 8)
    x = (np.eye(16)[labels] + 0.05 * rng.standard_normal((128, 16))).astype(np.float32)
    planted = case(x, tau=0.1)
    rows, offsets = planted.cut(16)
    made = refined(planted, rows, offsets, most=30)
    best = planted.loss(np.argsort(labels, kind="stable"), offsets)
    assert made.gain > 0.5 * (best - planted.loss(rows, offsets))


def test_nothing_to_do(clusters):
    case = clusters(50)
    rows, offsets = case.cut(10)
    for some in (rows[:10], rows):
        ends = offsets[: len(some) // 10 + 1]
        made = refined(case, some, ends, most=0)
        assert np.array_equal(made.rows, some)
        assert (made.gain, made.passes) == (0, 0)
    whole = np.array([0, 50])
    one = refined(case, rows, whole, most=3)  # a single batch has none to exchange rows with
    assert np.array_equal(one.rows, rows)
    assert one.gain == 0


@pytest.mark.parametrize("marks", ["plain", "all"])
def test_the_rows_given_are_not_changed(clusters, marks):
    rows, offsets = clusters(60).cut(8)
    before = rows.copy()
    refined((PLAIN | MARKED)[marks](clusters(60)), rows, offsets)
    assert np.array_equal(rows, before)


def repeated(n, batch_size, count, seed=0):
    """Batches as samples: rows are in several of them, and never twice in one."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(n, batch_size, replace=False) for _ in range(count)])
    return rows, np.arange(count + 1) * batch_size


@pytest.mark.parametrize("marks", PLAIN | MARKED)
@pytest.mark.parametrize("n", [20, 90])
def test_rows_that_are_in_several_batches(clusters, marks, n):
    case = (PLAIN | MARKED)[marks](clusters(n))
    rows, offsets = repeated(n, 16, 12)
    made = refined(case, rows, offsets)
    assert np.array_equal(np.sort(made.rows), np.sort(rows))
    for batch in np.split(made.rows, offsets[1:-1]):
        assert len(set(batch.tolist())) == len(batch)
    rise = case.loss(made.rows, offsets) - case.loss(rows, offsets)
    assert made.gain == pytest.approx(rise, rel=1e-4)
    if marks == "plain":
        assert rise > 0


def test_the_padded_last_batch(clusters):
    case = clusters(90)
    order = np.random.default_rng(0).permutation(90)
    rows, offsets = np.concatenate([order[:80], order[-16:]]), np.arange(7) * 16
    made = refined(case, rows, offsets)
    assert np.array_equal(np.sort(made.rows), np.sort(rows))
    assert all(len(set(one.tolist())) == 16 for one in np.split(made.rows, offsets[1:-1]))
    assert case.loss(made.rows, offsets) > case.loss(rows, offsets)


@pytest.mark.parametrize("marks", PLAIN | MARKED)
def test_kinds_stay_where_they_are(clusters, marks):
    kinds = np.random.default_rng(4).integers(0, 3, 130)
    case = (PLAIN | MARKED)[marks](clusters(130)).but(kinds=kinds)
    rows, offsets = case.cut(16)
    made = refined(case, rows, offsets)
    for one, other in zip(*(np.split(r, offsets[1:-1]) for r in (rows, made.rows)), strict=True):
        assert np.array_equal(
            np.bincount(kinds[one], minlength=3), np.bincount(kinds[other], minlength=3)
        )
    assert made.gain == pytest.approx(
        case.loss(made.rows, offsets) - case.loss(rows, offsets), rel=1e-4
    )
    assert not np.array_equal(np.sort(made.rows[:16]), np.sort(rows[:16]))


def test_rows_each_of_a_kind_cannot_move(clusters):
    case = clusters(60).but(kinds=np.arange(60))
    rows, offsets = case.cut(8)
    assert np.array_equal(refined(case, rows, offsets).rows, rows)


@pytest.mark.parametrize("marks", ["plain", "all", "groups and judge"])
def test_threads_and_repeats_do_not_matter(use_threads, clusters, marks):
    case = (PLAIN | MARKED)[marks](clusters(1200, clusters=40))
    rows, offsets = case.cut(8)
    affinity = case.affinity()
    found = []
    for threads in (1, 2, 3, 1):
        use_threads(threads)
        found.append(refined(case, rows, offsets, affinity, most=2))
        assert torch.get_num_threads() == threads
    assert len({one.rows.tobytes() for one in found}) == 1
    assert len({(one.gain, one.passes) for one in found}) == 1
