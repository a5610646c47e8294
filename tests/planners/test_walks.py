"""Walks against a walker in plain Python that draws the same numbers, and on awkward graphs."""

from itertools import pairwise

import numpy as np
import pytest

from batchplan.planners.rwr import walks
from batchplan.planners.rwr.walks import (
    PATIENCE,
    Walker,
    cumulative_weights,
    disjoint,
    independent,
)

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
KINDS = ("rwr", "rw", "bfs", "dfs")


def mix(word):
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


class Plain:
    """One batch at a time, by lists and sets."""

    def __init__(self, walker, similarities=None):
        self.walker = walker
        self.graph = [[j for j in row if j >= 0] for row in walker.graph.tolist()]
        self.weights = None
        if similarities is not None:
            self.weights = [[max(s, 0.0) for s in row] for row in similarities.tolist()]
        self.jumps = self.strays = 0

    def number(self):
        self.drawn += 1
        return (mix((self.own + (self.drawn - 1) * GOLDEN) & MASK) >> 11) / 2**53

    def choose(self, row, allowed):
        """One of the neighbours at ``allowed`` places."""
        number = self.number()
        if not allowed:
            return row
        weights = [self.weights[row][c] if self.weights else 1.0 for c in allowed]
        if not sum(weights):
            weights = [1.0] * len(allowed)
        wanted = number * sum(weights)
        for c, weight in zip(allowed, weights, strict=True):
            if wanted < weight:
                return self.graph[row][c]
            wanted -= weight
        raise AssertionError("rounding")

    def stray(self, taken):
        order = self.walker.order.tolist()
        n, place = len(order), 0
        if self.sampling:
            place = int(self.number() * n)
        while order[place % n] in taken:
            place += 1
        return order[place % n]

    def batch(self, size, index, taken, sampling):
        self.sampling, self.drawn = sampling, 0
        self.own = mix(int(self.walker.key) ^ mix((index + GOLDEN) & MASK))
        taken = set(taken)
        found = [self.stray(taken)]
        start = here = found[0]
        taken.add(start)
        path, misses = [start], 0
        restart = self.walker.restart
        while len(found) < size:
            row = None
            if self.walker.kind == walks.KINDS["rw"] and misses < PATIENCE:
                leave = start if self.number() < restart else here
                here = self.choose(leave, range(len(self.graph[leave])))
                if here in taken:
                    misses += 1
                    continue
                row = here
            elif self.walker.kind == walks.KINDS["dfs"]:
                while path and row is None:
                    own = self.graph[path[-1]]
                    new = [c for c, j in enumerate(own) if j not in taken]
                    if new:
                        row = self.choose(path[-1], new)
                    else:
                        path.pop()
            else:
                new = (j for i in found for j in self.graph[i] if j not in taken)
                row = next(new, None)
                self.jumps += row is not None and self.walker.kind != walks.KINDS["bfs"]
            if row is None:
                self.strays += 1
                start = row = self.stray(taken)
            found.append(row)
            taken.add(row)
            path.append(row)
            here, misses = row, 0
        return found


def make_walker(graph, similarities=None, walk="rwr", restart=0.2, seed=0):
    rng = np.random.default_rng(seed)
    weights = np.empty((0, 0), np.float32)
    if similarities is not None:
        weights = cumulative_weights(similarities.copy())
    key = rng.integers(2**64, dtype=np.uint64)
    order = rng.permutation(len(graph))
    restart = restart if walk == "rwr" else 0.0
    return Walker(graph.astype(np.int32), weights, order, key, walks.KINDS[walk], restart)


def random_graph(n, k, seed=0):
    """Distinct neighbours, never the row; whole weights, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    graph = np.array([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)])
    similarities = -np.sort(-rng.choice([-2.0, 0.0, 1.0, 2.0, 4.0], (n, k)), axis=1)
    similarities[:, 0] = np.where(similarities[:, 0] > 0, 4.0, similarities[:, 0])
    return graph, similarities.astype(np.float32)


def shorten(graph, similarities, seed=0):
    """Rows with fewer neighbours, and some with none."""
    rng = np.random.default_rng(seed)
    gone = np.arange(graph.shape[1]) >= rng.integers(0, graph.shape[1] + 1, len(graph))[:, None]
    return np.where(gone, -1, graph), np.where(gone, np.float32(-np.inf), similarities)


def take(walker, batch_size, num_rows=None, used=None, first=0):
    n = len(walker.graph)
    used = np.zeros(n, bool) if used is None else used
    num_rows = n - int(used.sum()) if num_rows is None else num_rows
    return disjoint(walker, used, batch_size, num_rows, first, lambda _: None)


def sample(walker, batch_size, num_batches):
    return independent(walker, batch_size, num_batches, lambda _: None)


@pytest.mark.parametrize("walk", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("restart", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("n", "k", "size"), [(60, 4, 7), (50, 1, 8), (40, 39, 16)])
@pytest.mark.parametrize("short", [False, True])
def test_batches_of_plain_python(walk, weighted, restart, n, k, size, short):
    graph, similarities = random_graph(n, k, seed=n)
    if short:
        graph, similarities = shorten(graph, similarities)
    given = similarities if weighted else None
    walker = make_walker(graph, given, walk, restart)
    plain = Plain(walker, given)
    expected, taken = [], set()
    for index in range(-(-n // size)):
        expected += plain.batch(min(size, n - len(expected)), index, taken, sampling=False)
        taken = set(expected)
    found = take(walker, size)
    assert found.rows.tolist() == expected
    assert (found.jumps, found.strays) == (plain.jumps, plain.strays)

    plain = Plain(walker, given)
    expected = [row for index in range(9) for row in plain.batch(size, index, (), sampling=True)]
    found = sample(walker, size, 9)
    assert found.rows.tolist() == expected
    assert (found.jumps, found.strays) == (plain.jumps, plain.strays)


def star(n):
    """Everyone knows row 0, who knows row 1."""
    return np.array([[1], *[[0]] * (n - 1)])


def chain(n):
    return np.minimum(np.arange(n) + 1, n - 2 + (np.arange(n) < n - 1))[:, None]


def two_cliques(n):
    half = n // 2
    rows = [[j for j in range(half) if j != i] for i in range(half)]
    return np.array(rows + [[half + j for j in row] for row in rows])


def pairs(n):
    """Every component has two rows."""
    return (np.arange(n) ^ 1)[:, None]


def unreachable(n):
    """The last rows have neighbours, and are nobody's."""
    graph, _ = random_graph(n - 10, 3)
    return np.vstack([graph, np.tile([0, 1, 2], (10, 1))])


@pytest.mark.parametrize("make", [star, chain, two_cliques, pairs, unreachable])
@pytest.mark.parametrize("walk", KINDS)
@pytest.mark.parametrize("restart", [0.0, 0.5, 1.0])
def test_awkward_graphs_end_in_a_partition(make, walk, restart):
    graph = make(62)
    falling = -np.sort(-np.random.default_rng(0).standard_normal(graph.shape), axis=1)
    for given in (None, falling.astype(np.float32)):
        walker = make_walker(graph, given, walk, restart)
        for size in (2, 9, 62):
            found = take(walker, size)
            assert sorted(found.rows) == list(range(62))
            assert found.jumps + found.strays < 62
            drawn = sample(walker, size, 5).rows.reshape(5, size)
            assert all(len(set(batch.tolist())) == size for batch in drawn)


@pytest.mark.parametrize("walk", KINDS)
def test_a_batch_stays_in_its_clique(walk):
    found = take(make_walker(two_cliques(64), walk=walk), 32)
    for batch in np.split(found.rows // 32, 2):
        assert len(set(batch.tolist())) == 1
    assert found.strays == 0


def test_restart_one_takes_neighbours_of_the_start():
    """Section 4.3: the walk becomes the nearest-neighbour sampler, and does not stand still."""
    graph, _ = random_graph(300, 40)
    walker = make_walker(graph, restart=1.0)
    for batch in sample(walker, 30, 50).rows.reshape(50, 30):
        assert set(batch[1:]) <= set(graph[batch[0]])


def test_breadth_first_takes_the_nearest():
    graph, _ = random_graph(300, 40)
    for batch in sample(make_walker(graph, walk="bfs"), 30, 50).rows.reshape(50, 30):
        assert np.array_equal(batch[1:], graph[batch[0]][:29])


def test_depth_first_goes_from_row_to_row():
    graph, _ = random_graph(300, 40)
    for batch in sample(make_walker(graph, walk="dfs"), 30, 50).rows.reshape(50, 30):
        assert all(after in graph[before] for before, after in pairwise(batch))


def test_starts_of_independent_batches_are_uniform():
    graph, _ = random_graph(20, 3)
    starts = sample(make_walker(graph), 4, 4000).rows.reshape(4000, 4)[:, 0]
    counts = np.bincount(starts, minlength=20)
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # 19 degrees, p = 0.001


@pytest.mark.parametrize("weighted", [False, True])
def test_neighbours_are_chosen_by_their_weights(weighted):
    """Row 0 has neighbours of similarity 3, 1, 0 and -1; batches of two that begin there."""
    graph = np.array([[1, 2, 3, 4]] + [[0, 5, 6, 7]] * 9)
    similarities = np.tile(np.array([3, 1, 0, -1], np.float32), (10, 1))
    walker = make_walker(graph, similarities if weighted else None)
    batches = sample(walker, 2, 40_000).rows.reshape(-1, 2)
    second = batches[batches[:, 0] == 0, 1]
    shares = np.bincount(second, minlength=5)[1:5] / len(second)
    expected = [0.75, 0.25, 0, 0] if weighted else [0.25] * 4
    np.testing.assert_allclose(shares, expected, atol=0.03)


def test_weights_are_running_sums_of_what_is_positive():
    given = np.array([[4, 2, 0, -1], [-1, -2, -3, -4], [3e38, 3e38, 1e38, 0]], np.float32)
    expected = [[1, 1.5, 1.5, 1.5], [0] * 4, [1, 2, 2 + 1 / 3, 2 + 1 / 3]]
    np.testing.assert_allclose(cumulative_weights(given), expected, rtol=1e-6)


@pytest.mark.parametrize("walk", KINDS)
def test_parts_of_an_epoch_are_the_batches_of_the_whole(walk):
    graph, _ = random_graph(75, 6)
    walker = make_walker(graph, walk=walk)
    whole = take(walker, 8).rows
    used, parts = np.zeros(75, bool), []
    for first, rows in ((0, 24), (3, 8), (4, 43)):
        parts.append(take(walker, 8, rows, used, first).rows)
        assert used.sum() == sum(map(len, parts))
    assert np.array_equal(np.concatenate(parts), whole)


def test_threads_and_calls_do_not_matter(use_threads, monkeypatch):
    graph, _ = random_graph(200, 6)
    walker = make_walker(graph)
    found = []
    for threads, at_once in ((1, 256), (2, 3), (3, 1)):
        use_threads(threads)
        monkeypatch.setattr(walks, "_AT_ONCE", at_once)
        found.append((take(walker, 7), sample(walker, 7, 50)))
    for other in found[1:]:
        for one, again in zip(found[0], other, strict=True):
            assert np.array_equal(one.rows, again.rows)
            assert (one.jumps, one.strays) == (again.jumps, again.strays)
