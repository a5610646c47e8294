"""Cuthill-McKee against its stated order in plain Python, and against SciPy where nothing ties."""

import time

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse.csgraph import reverse_cuthill_mckee

from batchplan.graph import csr
from batchplan.planners.papers.gcbs import ordering
from batchplan.planners.papers.gcbs.ordering import _component_of, _level_synchronous, cuthill_mckee
from batchplan.planners.papers.gcbs.similarity_graph import SimilarityGraph


def graph_of(n, edges):
    """The symmetric graph of a list of pairs."""
    pairs = np.array([(i, j) for i, j in edges if i != j], dtype=np.int64).reshape(-1, 2)
    keys = np.unique(np.concatenate([pairs[:, 0] * n + pairs[:, 1], pairs[:, 1] * n + pairs[:, 0]]))
    rows, columns = np.divmod(keys, n)
    indptr = np.searchsorted(rows, np.arange(n + 1))
    columns = torch.from_numpy(columns.astype(np.int32))
    return SimilarityGraph(torch.from_numpy(indptr), columns, None, 0.0)


def matrix_of(graph):
    values = np.ones(graph.num_edges, np.float32)
    return csr.square(graph.indptr.numpy(), graph.indices.numpy(), values)


def reference(graph):
    """The order as the module states it, and whether a lower index ever broke a tie."""
    n, indptr, indices = graph.num_rows, graph.indptr.tolist(), graph.indices.tolist()
    neighbors = [indices[indptr[v] : indptr[v + 1]] for v in range(n)]

    def rank(v):
        return len(neighbors[v]), v

    placed, order, tie = set(), [], False
    while len(order) < n:
        waiting = sorted(set(range(n)) - placed, key=rank)
        tie |= len(waiting) > 1 and rank(waiting[0])[0] == rank(waiting[1])[0]
        queue = [waiting[0]]
        placed.add(waiting[0])
        for vertex in queue:
            children = sorted((w for w in neighbors[vertex] if w not in placed), key=rank)
            degrees = [rank(child)[0] for child in children]
            tie |= len(set(degrees)) < len(degrees)
            placed.update(children)
            queue += children
        order += queue
    return order, tie


def by_levels(graph):
    return _level_synchronous(graph.indptr, graph.indices)


def check(graph):
    expected, _ = reference(graph)
    assert cuthill_mckee(graph, reverse=False).tolist() == expected
    assert cuthill_mckee(graph).tolist() == expected[::-1]
    assert by_levels(graph).tolist() == expected


def path(n):
    return n, [(i, i + 1) for i in range(n - 1)]


def star(n):
    return n, [(n // 2, i) for i in range(n)]


def clique(n):
    return n, [(i, j) for i in range(n) for j in range(i)]


def grid(n):
    return n * n, [
        (i * n + j, a * n + b)
        for i in range(n)
        for j in range(n)
        for a, b in ((i + 1, j), (i, j + 1))
        if a < n and b < n
    ]


def apart(n):
    """No edge at all."""
    return n, []


def together(*graphs):
    """Their disjoint union."""
    total, edges = 0, []
    for n, own in graphs:
        edges += [(i + total, j + total) for i, j in own]
        total += n
    return total, edges


SHAPES = st.builds(
    lambda make, n: make(n), st.sampled_from((path, star, clique, grid, apart)), st.integers(1, 9)
)


@st.composite
def random_shapes(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from((0.5, 1.0, 2.0, 10.0, n))) / n
    return n, np.argwhere(rng.random((n, n)) < share).tolist()


@st.composite
def graphs(draw):
    n, edges = together(*draw(st.lists(SHAPES | random_shapes(), min_size=1, max_size=4)))
    if draw(st.booleans()):
        number = np.random.default_rng(draw(st.integers(0, 2**32))).permutation(n).tolist()
        edges = [(number[i], number[j]) for i, j in edges]
    return graph_of(n, edges)


@given(graphs())
@example(graph_of(1, []))
@example(graph_of(2, [(0, 1)]))
@example(graph_of(*path(300)))
@example(graph_of(*star(300)))
@example(graph_of(*grid(20)))
def test_equals_the_reference(graph):
    check(graph)


@pytest.mark.parametrize("at_once", [1, 5, 64])
def test_levels_in_several_pieces(monkeypatch, at_once):
    monkeypatch.setattr(ordering, "_EXPANDED_AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    for shape in (
        together(path(7), star(30), clique(9), apart(3)),
        (40, rng.integers(0, 40, (60, 2)).tolist()),
        (40, rng.integers(0, 40, (600, 2)).tolist()),
    ):
        check(graph_of(*shape))


def test_both_index_types():
    graph = graph_of(*grid(6))
    wide = SimilarityGraph(graph.indptr, graph.indices.long(), None, 0.0)
    order = cuthill_mckee(wide)
    assert order.dtype == torch.int64
    assert order.tolist() == cuthill_mckee(graph).tolist()
    assert by_levels(wide).tolist() == by_levels(graph).tolist()


def test_directions_do_not_matter():
    graph = graph_of(*grid(6))
    rows = csr.row_of_entry(graph.indptr)
    kept = graph.indices > rows
    counts = torch.bincount(rows[kept], minlength=36)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    directed = SimilarityGraph(indptr, graph.indices[kept], None, 0.0)
    assert torch.equal(cuthill_mckee(directed), cuthill_mckee(graph))


def test_equals_scipy_where_nothing_ties():
    rng = np.random.default_rng(0)
    compared = sizes = 0
    for _ in range(3000):
        n = int(rng.integers(4, 16))
        graph = graph_of(n, np.argwhere(rng.random((n, n)) < rng.uniform(0.05, 0.5)).tolist())
        order, tie = reference(graph)
        if tie:
            continue
        assert cuthill_mckee(graph).tolist() == order[::-1]
        scipys = reverse_cuthill_mckee(matrix_of(graph).astype(float), symmetric_mode=True)
        assert scipys.tolist() == order[::-1]
        compared += 1
        sizes += n
    assert compared >= 50
    assert sizes / compared > 6


def test_narrows_the_band_of_a_shuffled_grid():
    number = np.random.default_rng(0).permutation(400)
    n, edges = grid(20)
    graph = graph_of(n, [(number[i], number[j]) for i, j in edges])
    place = np.argsort(cuthill_mckee(graph).numpy())
    i, j = (torch.repeat_interleave(torch.arange(n), graph.indptr.diff()), graph.indices)
    assert np.abs(place[i] - place[j]).max() <= 22


def hub(n):
    """One vertex that knows all, and a few edges elsewhere."""
    others = np.random.default_rng(0).integers(0, n, (n // 10, 2))
    return graph_of(n, np.concatenate([np.stack([np.zeros(n, int), np.arange(n)], 1), others]))


def components(n):
    """n paths of four vertices."""
    start = 4 * np.arange(n)[:, None]
    return graph_of(4 * n, np.concatenate([start + np.array([k, k + 1]) for k in range(3)]))


def seconds(function, graph):
    taken = []
    for _ in range(5):
        began = time.thread_time()  # what other processes do does not count
        function(graph)
        taken.append(time.thread_time() - began)
    return min(taken)


@pytest.mark.parametrize(("make", "n"), [(hub, 25_000), (components, 10_000)])
def test_near_linear_time(make, n):
    small, large = make(n), make(4 * n)
    order = cuthill_mckee(small, reverse=False)
    assert torch.equal(by_levels(small), order)
    assert np.array_equal(np.sort(order), np.arange(small.num_rows))
    # Quadratic time would make the ratio 16, and at these sizes minutes; the floor keeps caches,
    # which the small graph fits and the large one does not, from deciding.
    assert seconds(cuthill_mckee, large) < 10 * max(seconds(cuthill_mckee, small), 0.03)


@pytest.mark.parametrize("shuffled", [False, True])
def test_work_of_the_levels_is_linear(monkeypatch, shuffled):
    """A path has as many levels as vertices: each may look only at its own edges."""
    n, edges = path(2000)
    number = np.random.default_rng(0).permutation(n) if shuffled else np.arange(n)
    graph = graph_of(n, [(number[i], number[j]) for i, j in edges])
    looked_at, neighbors = [], ordering._neighbors

    def counted(indptr, indices, rows):
        found = neighbors(indptr, indices, rows)
        looked_at.append((rows.numel(), found[0].numel()))
        return found

    monkeypatch.setattr(ordering, "_neighbors", counted)
    assert torch.equal(by_levels(graph), cuthill_mckee(graph, reverse=False))
    levels = [entries for rows, entries in looked_at if rows < n]
    rounds = [entries for rows, entries in looked_at if rows == n]
    assert sum(levels) == graph.num_edges
    assert max(levels) <= 2
    assert len(rounds) <= 2 * np.log2(n)


@given(graphs())
def test_components(graph):
    from scipy.sparse.csgraph import connected_components

    rank = torch.empty(graph.num_rows, dtype=torch.int64)
    rank[torch.argsort(graph.indptr.diff(), stable=True)] = torch.arange(graph.num_rows)
    found = _component_of(graph.indptr, graph.indices, rank).numpy()
    _, expected = connected_components(matrix_of(graph), directed=False)
    for label in np.unique(expected):
        inside = expected == label
        assert (found[inside] == rank.numpy()[inside].min()).all()
