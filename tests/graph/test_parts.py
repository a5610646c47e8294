"""Parts of exactly the sizes asked for, whatever the graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.graph.affinity import Affinity
from batchplan.graph.parts import parts_of
from batchplan.graph.sizes import fit_sizes


def partition(affinity, sizes, seed):
    return parts_of(affinity, sizes, np.random.default_rng(seed))


def affinity_of(dense):
    rows, columns = np.nonzero(dense)
    indptr = np.append(0, np.cumsum((dense > 0).sum(axis=1)))
    return Affinity(indptr, columns.astype(np.int32), dense[rows, columns].astype(np.float32))


def random_graph(n, share, seed, pieces=1):
    """Weights (n, n) of a graph in so many pieces at least."""
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) * (rng.random((n, n)) < share), 1)
    piece = rng.integers(0, pieces, n)
    dense *= piece[:, None] == piece
    return dense + dense.T


def edges(n, *weighted):
    dense = np.zeros((n, n))
    for i, j, weight in weighted:
        dense[i, j] = dense[j, i] = weight
    return affinity_of(dense)


@st.composite
def partitions(draw):
    sizes = sorted(draw(st.lists(st.integers(1, 9), min_size=2, max_size=10)), reverse=True)
    n = sum(sizes)
    dense = random_graph(
        n,
        draw(st.sampled_from((0.0, 0.05, 0.3, 1.0))),
        draw(st.integers(0, 999)),
        draw(st.sampled_from((1, 2, 5))),
    )
    return dense * draw(st.sampled_from((1e-30, 1.0, 1e6))), np.array(sizes)


@settings(max_examples=80)
@given(partitions())
def test_sizes_are_exact(problem):
    dense, sizes = problem
    parts = partition(affinity_of(dense), sizes, 0)
    assert parts.dtype == np.int64
    assert np.array_equal(np.bincount(parts, minlength=len(sizes)), sizes)
    assert np.array_equal(partition(affinity_of(dense), sizes, 0), parts)


@pytest.mark.parametrize("sizes", [[16] * 12 + [8], [20, 20, 20, 3, 2, 2], [40, 1], [1] * 30])
def test_short_parts(sizes):
    n = sum(sizes)
    parts = partition(affinity_of(random_graph(n, 0.1, 0)), np.array(sizes), 1)
    assert np.bincount(parts).tolist() == sizes


@pytest.mark.parametrize("last", [16, 5])
def test_planted_clusters_are_found(last):
    """12 of 16 rows, or the last one shorter, shuffled, with weak edges between them."""
    sizes = np.array([16] * 11 + [last])
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(12), sizes))
    n = len(labels)
    dense = random_graph(n, 0.1, 1) * 0.05
    dense[labels[:, None] == labels] = 1
    np.fill_diagonal(dense, 0)
    parts = partition(affinity_of(dense), sizes, 7)
    assert len(set(zip(parts, labels, strict=True))) == 12
    assert np.array_equal(np.bincount(parts), sizes)
    assert set(labels[parts == 11]) == ({11} if last == 5 else set(labels[parts == 11]))


def test_the_seed_and_large_seeds():
    """Of a graph that is made coarser first, which is where METIS draws."""
    graph = affinity_of(random_graph(1500, 0.01, 3))
    sizes = np.full(15, 100)
    found = [partition(graph, sizes, seed) for seed in (0, 1, 2, 2**31 - 1, 2**40 + 7)]
    assert len({parts.tobytes() for parts in found[:3]}) == 3
    for parts in found:
        assert (np.bincount(parts) == 100).all()


def test_more_weight_inside_than_by_chance():
    dense = random_graph(200, 0.05, 4)
    parts = partition(affinity_of(dense), np.full(20, 10), 0)
    inside = dense[parts[:, None] == parts].sum() / dense.sum()
    assert inside > 4 * 9 / 199


def fitted(graph, parts, sizes, kinds=None):
    kinds = np.zeros(len(parts), np.int64) if kinds is None else np.array(kinds)
    return fit_sizes(graph, np.array(parts), kinds, np.array(sizes)).tolist()


def test_those_with_least_weight_to_their_part_move():
    """Part 0 has one row too many: of its rows 2 is held by 1 only, less than the others."""
    graph = edges(6, (0, 1, 5), (1, 2, 1), (0, 3, 9), (2, 4, 3))
    assert fitted(graph, [0, 0, 0, 1, 1, 2], [[2, 2, 2]]) == [0, 0, 2, 1, 1, 2]
    # With room in both, 2 goes to 1, where its neighbour 4 is.
    assert fitted(graph, [0, 0, 0, 1, 1, 2], [[2, 3, 1]]) == [0, 0, 1, 1, 1, 2]


def test_the_higher_of_equal_rows_moves():
    assert fitted(edges(4), [0, 0, 0, 1], [[2, 2]]) == [0, 0, 1, 1]


def test_the_most_attached_moves_first():
    """Both 1 and 2 have to leave and are drawn to part 1, which has room for one."""
    graph = edges(6, (0, 5, 1), (1, 3, 2), (2, 3, 5))
    assert fitted(graph, [0, 0, 0, 1, 2, 0], [[2, 2, 2]]) == [0, 2, 1, 1, 2, 0]


def test_of_two_parts_the_one_with_most_weight():
    graph = edges(7, (0, 1, 9), (2, 3, 2), (2, 4, 3), (2, 5, 2))  # to part 1: 2, to part 2: 3 + 2
    assert fitted(graph, [0, 0, 0, 1, 2, 2, 3], [[2, 2, 3, 0]])[2] == 2
    graph = edges(7, (0, 1, 9), (2, 3, 3), (2, 4, 2), (2, 5, 1))  # as much: the lower part
    assert fitted(graph, [0, 0, 0, 1, 2, 2, 3], [[2, 2, 2, 1]])[2] == 1


def test_without_neighbours_where_most_room_is():
    assert fitted(edges(6), [0] * 6, [[1, 2, 3]]) == [0, 2, 1, 2, 1, 2]


def test_a_row_that_moved_draws_others_to_where_it_is():
    """3 moves first, having more weight in all, to part 1; then 2 follows it."""
    graph = edges(7, (0, 1, 9), (2, 3, 4), (3, 5, 9), (0, 6, 1))
    parts = [0, 0, 0, 0, 2, 1, 2]
    assert fitted(graph, parts, [[2, 3, 2]])[2:4] == [1, 1]


def test_kinds_have_sizes_of_their_own():
    kinds = [0, 0, 1, 1, 0, 1]
    found = fitted(edges(6), [0] * 6, [[1, 2], [2, 1]], kinds)
    for part, kind, wanted in ((0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 1, 1)):
        assert sum(p == part and k == kind for p, k in zip(found, kinds, strict=True)) == wanted


@settings(max_examples=100)
@given(st.data())
def test_any_sizes_and_kinds(data):
    n, count = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 6))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    kinds = rng.integers(0, data.draw(st.integers(1, 3)), n)
    kinds = np.unique(kinds, return_inverse=True)[1]
    goal = rng.integers(0, count, n)
    sizes = np.zeros((kinds.max() + 1, count), np.int64)
    np.add.at(sizes, (kinds, goal), 1)
    parts = rng.integers(0, count, n)
    graph = affinity_of(random_graph(n, data.draw(st.sampled_from((0.0, 0.2, 0.9))), 0))
    before = parts.copy()
    found = fit_sizes(graph, parts, kinds, sizes)
    held = np.zeros_like(sizes)
    np.add.at(held, (kinds, found), 1)
    assert np.array_equal(held, sizes)
    assert np.array_equal(parts, before)
    counts = np.zeros_like(sizes)
    np.add.at(counts, (kinds, parts), 1)
    # No row moves but out of a part that has too many of its kind, and only those that are extra.
    assert (found != parts).sum() == np.maximum(counts - sizes, 0).sum()


def test_nothing_to_move():
    parts = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 6))
    graph = affinity_of(random_graph(30, 0.3, 0))
    assert fitted(graph, parts, [[6] * 5]) == parts.tolist()
