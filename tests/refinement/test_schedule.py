"""Which pairs of batches meet, and in which round, against plain Python."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from batchplan.refinement.schedule import Visits, in_rounds, promising_pairs
from tests.graph.test_parts import affinity_of


@st.composite
def matches(draw):
    count = draw(st.integers(2, 12))
    batch = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(batch, batch).filter(lambda p: p[0] < p[1]), unique=True))
    return count, pairs, draw(st.integers(1, 6))


def first_fit(pairs, most):
    rounds = [[] for _ in range(most)]
    for pair in pairs:
        for one in rounds:
            if not any(set(pair) & set(other) for other in one):
                one.append(pair)
                break
    return [one for one in rounds if one]


@given(matches())
def test_rounds(problem):
    count, pairs, most = problem
    found = in_rounds(np.array(pairs, np.int64).reshape(-1, 2), count, most)
    found = [[tuple(pair) for pair in one.tolist()] for one in found]
    for one in found:
        batches = [batch for pair in one for batch in pair]
        assert len(set(batches)) == len(batches)
    together = [pair for one in found for pair in one]
    assert len(set(together)) == len(together)
    assert found == first_fit(pairs, most)


def test_no_pair_is_left_out_where_there_are_rounds_enough():
    pairs = np.array([(a, b) for a in range(9) for b in range(a + 1, 9)])
    found = in_rounds(pairs, 9, 36)
    assert sum(map(len, found)) == 36
    assert len(in_rounds(pairs, 9, 3)) == 3


EAGER = 1.5


def expected(weights, batches, partners, visited, changed):
    """``weights[i][j]``; ``visited`` has the round of a pair, ``changed`` that of a batch."""
    home = {row: k for k, batch in enumerate(batches) for row in batch}
    promise = defaultdict(float)
    for k, batch in enumerate(batches):
        pull = defaultdict(float)
        for row in batch:
            held = defaultdict(float)
            for other, weight in weights[row].items():
                if other in home:
                    held[home[other]] += weight
            for there in set(held) - {k}:
                drawn = EAGER * held[there] - held[k]
                if drawn > 0:
                    pull[there] += drawn
        named = sorted(pull, key=lambda there: (-pull[there], there))
        open_ = [
            there for there in named
            if visited.get((min(k, there), max(k, there)), -9) < max(changed[k], changed[there])
            or (min(k, there), max(k, there)) not in visited
        ]  # fmt: skip
        for there in open_[:partners]:
            promise[min(k, there), max(k, there)] += pull[there]
    return sorted(promise, key=lambda pair: (-promise[pair], pair))


@st.composite
def schedules(draw):
    """Small whole weights, so that there are many ties and sums are exact."""
    n = draw(st.integers(4, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.integers(1, 4, (n, n)) * (rng.random((n, n)) < draw(st.sampled_from((0.1, 0.4))))
    dense = np.triu(dense, 1)
    dense = dense + dense.T
    sizes = []
    while sum(sizes) < n:
        sizes.append(draw(st.integers(1, 5)))
    rows = rng.permutation(n)
    offsets = np.minimum(np.append(0, np.cumsum(sizes)), n)
    count = len(offsets) - 1
    assume(count > 1)
    changed = rng.integers(-1, 4, count)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    visited = {
        pair: int(rng.integers(0, 4))
        for pair in pairs if rng.random() < draw(st.sampled_from((0.0, 0.5)))
    }  # fmt: skip
    if draw(st.booleans()):  # a plan that lacks rows
        dropped = rng.random(count) < 0.3
        dropped[:2] = False
        kept = [
            rows[a:b] for a, b, gone in zip(offsets, offsets[1:], dropped, strict=False) if not gone
        ]
        numbers = np.flatnonzero(~dropped)
        rows, offsets = np.concatenate(kept), np.append(0, np.cumsum([len(one) for one in kept]))
        changed = changed[~dropped]
        place = {int(old): new for new, old in enumerate(numbers)}
        visited = {
            (place[a], place[b]): when
            for (a, b), when in visited.items() if a in place and b in place
        }  # fmt: skip
    return dense, rows, offsets, visited, changed, draw(st.integers(1, 6))


def visits_of(visited, changed):
    visits = Visits(np.array(changed, np.int64))
    pairs = np.array(list(visited), np.int64).reshape(-1, 2)
    visits.record(pairs, np.array(list(visited.values()), np.int64))
    return visits


@settings(max_examples=150)
@given(schedules())
def test_promising_pairs(problem):
    dense, rows, offsets, visited, changed, partners = problem
    batches = [rows[a:b].tolist() for a, b in pairwise(offsets)]
    weights = [{int(j): int(row[j]) for j in np.flatnonzero(row)} for row in dense]
    found = promising_pairs(
        affinity_of(dense), rows, offsets, visits_of(visited, changed), partners
    )
    wanted = expected(weights, batches, partners, visited, changed)
    assert [tuple(pair) for pair in found.tolist()] == wanted


@pytest.mark.parametrize(("visit", "change", "again"), [(4, 3, False), (4, 4, False), (4, 5, True)])
def test_a_pair_is_looked_at_again_only_after_a_change(visit, change, again):
    dense = np.zeros((4, 4))
    dense[0, 2] = dense[2, 0] = 1
    rows, offsets = np.arange(4), np.array([0, 2, 4])
    for changed in ([change, -1], [-1, change]):
        visits = visits_of({(0, 1): visit}, changed)
        assert len(promising_pairs(affinity_of(dense), rows, offsets, visits, 3)) == again


def test_the_newest_visit_counts():
    visits = Visits(np.zeros(5, np.int64))
    visits.record(np.array([[0, 1], [2, 3]]), np.array([0, 2]))
    visits.record(np.array([[0, 4], [0, 1]]), np.array([4, 6]))
    visits.record(np.array([[1, 3]]), np.array([8]))
    found = dict(zip(visits.keys.tolist(), visits.rounds.tolist(), strict=True))
    assert found == {1: 6, 4: 4, 8: 8, 13: 2}
    assert (np.diff(visits.keys) > 0).all()
