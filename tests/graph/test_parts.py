"""Parts of exactly the sizes asked for, whatever the graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchplan.graph.affinity import Affinity
from batchplan.graph.parts import _contract as contract
from batchplan.graph.parts import _Graph as Graph
from batchplan.graph.parts import _improve as improve
from batchplan.graph.parts import _Limits as Limits
from batchplan.graph.parts import _move as move
from batchplan.graph.parts import parts_of
from batchplan.graph.sizes import fit_sizes
from batchplan.runtime import Runtime


def partition(affinity, sizes, seed):
    return parts_of(affinity, sizes, Runtime(seed=seed))


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
    """Other seeds give other parts, and any seed gives the right sizes."""
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


def graph_of(dense, rows=None):
    affinity = affinity_of(dense)
    rows = np.ones(len(dense), np.int32) if rows is None else rows.astype(np.int32)
    return Graph(affinity.indptr, affinity.indices, affinity.weights, rows)


@settings(max_examples=100)
@given(st.integers(2, 40), st.sampled_from((0.0, 0.1, 0.5, 1.0)), st.integers(0, 999))
def test_clusters_become_nodes(n, share, seed):
    """Against sums of a matrix."""
    rng = np.random.default_rng(seed)
    dense, rows = random_graph(n, share, seed), rng.integers(1, 5, n)
    names = rng.integers(0, n, n).astype(np.int32)
    node_of, *fields = contract(graph_of(dense, rows), names)
    found = Graph(*fields)
    count = len(set(names.tolist()))
    assert len(set(zip(node_of.tolist(), names.tolist(), strict=True))) == count
    member = np.zeros((count, n))
    member[node_of, np.arange(n)] = 1
    expected = member @ dense @ member.T
    np.fill_diagonal(expected, 0)
    sums = np.zeros((count, count))
    for node in range(count):
        entries = slice(found.indptr[node], found.indptr[node + 1])
        assert len(set(found.indices[entries].tolist())) == len(found.indices[entries])
        sums[node, found.indices[entries]] = found.weights[entries]
    assert np.allclose(sums, expected, atol=1e-5)
    assert np.array_equal(found.rows, member @ rows)


@settings(max_examples=100)
@given(st.integers(2, 60), st.sampled_from((0.0, 0.1, 0.5)), st.integers(0, 999), st.integers(1, 6))
def test_moves_keep_to_their_limits_and_the_weight_inside_never_falls(n, share, seed, rounds):
    rng = np.random.default_rng(seed)
    dense, rows, count = random_graph(n, share, seed), rng.integers(1, 4, n), max(1, n // 5)
    parts = (np.arange(n) % count).astype(np.int32)
    before = parts.copy()
    held = np.bincount(parts, weights=rows, minlength=count)
    limits = Limits(most=int(held.max()) + 2, least=int(held.min()) - 2)
    improve(graph_of(dense, rows), parts, count, limits, rounds, rng)
    held = np.bincount(parts, weights=rows, minlength=count)
    assert limits.least <= held.min()
    assert held.max() <= limits.most
    inside = [dense[one[:, None] == one].sum() for one in (before, parts)]
    assert inside[1] >= inside[0] - 1e-4


def test_a_node_takes_the_heaviest_part_with_room_and_among_equals_the_emptiest():
    """Node 0, alone in part 0, is drawn to parts 1 (full), 2 and 3 (as much, with fewer rows)."""
    dense = np.zeros((7, 7))
    for other, weight in ((1, 9), (3, 2), (5, 2)):
        dense[0, other] = dense[other, 0] = weight
    parts = np.array([0, 1, 1, 2, 2, 3, 1], np.int32)
    held = np.bincount(parts)
    limits, order, awake = Limits(most=3, least=0), np.array([0]), np.arange(7) == 0
    assert move(graph_of(dense), parts, held, limits, order, awake) == 1
    assert parts.tolist() == [3, 1, 1, 2, 2, 3, 1]
    assert held.tolist() == [0, 3, 2, 2]
    assert np.flatnonzero(awake).tolist() == [1, 3, 5]
    assert move(graph_of(dense), parts, held, limits, order, awake) == 0  # no neighbour moved


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


def test_part_0_counts_like_the_others():
    """Row 4 is drawn to part 0 more than to part 1, which it meets later."""
    graph = edges(8, (5, 6, 9), (0, 4, 3), (2, 4, 1))
    found = fitted(graph, [0, 0, 1, 1, 2, 2, 2, 2], [[3, 3, 2]])
    assert found == [0, 0, 1, 1, 0, 2, 2, 1]


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
