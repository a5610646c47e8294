"""Walks against a walker in plain Python that draws the same numbers, and on awkward graphs."""

import random

import numpy as np
import pytest

from batchplan.planners.papers.rwr import walks
from batchplan.planners.papers.rwr.walks import PATIENCE, Walker, complete, disjoint, independent

from .test_proximity import mix

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
KINDS = ("rwr", "rw", "bfs")
WAYS = [("rwr", 0.3), ("rwr", 1.0), ("rw", 0.0), ("bfs", 0.0)]


class Plain:
    """One batch at a time, by lists and sets."""

    def __init__(self, walker):
        self.walker = walker
        self.graph = [[j for j in row if j >= 0] for row in walker.graph.tolist()]

    def number(self):
        self.drawn += 1
        return (mix((self.own + (self.drawn - 1) * GOLDEN) & MASK) >> 11) / 2**53

    def choose(self, row):
        """One of the neighbours."""
        number, near = self.number(), self.graph[row]
        return near[int(number * len(near))] if near else row

    def stray(self, taken):
        order = self.walker.order.tolist()
        n, place = len(order), self.place
        if self.sampling:
            place = int(self.number() * n)
        while order[place % n] in taken:
            place += 1
        return order[place % n]

    def batch(self, size, index, taken, sampling, place=0):
        self.sampling, self.drawn, self.place = sampling, 0, place
        self.own = mix(int(self.walker.key) ^ mix((index + GOLDEN) & MASK))
        taken = set(taken)
        found = [self.stray(taken)]
        start = here = found[0]
        taken.add(start)
        misses = 0
        restart = self.walker.restart
        while len(found) < size:
            row = None
            if not self.walker.breadth and misses < PATIENCE:
                leave = start if self.number() < restart else here
                here = self.choose(leave)
                if here in taken:
                    misses += 1
                    continue
                row = here
            else:
                new = (j for i in found for j in self.graph[i] if j not in taken)
                row = next(new, None)
            if row is None:
                start = row = self.stray(taken)
            found.append(row)
            taken.add(row)
            here, misses = row, 0
        return found

    def complete(self, size, wanted):
        """Batches whose first row is the next that none has had; and the rows in none."""
        found, order = [], self.walker.order.tolist()
        while len(set(found)) < wanted:
            place = next(i for i, row in enumerate(order) if row not in found)
            found += self.batch(size, len(found) // size, (), False, place)
        return found, [row for row in order if row not in found]


def make_walker(graph, walk="rwr", restart=0.2, seed=0):
    rng = np.random.default_rng(seed)
    key = rng.integers(2**64, dtype=np.uint64)
    order = rng.permutation(len(graph))
    restart = restart if walk == "rwr" else 0.0
    return Walker(graph.astype(np.int32), order, key, walk == "bfs", restart)


def random_graph(n, k, seed=0):
    """Distinct neighbours, never the row."""
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)])


def shorten(graph, seed=0):
    """Rows with fewer neighbours, and some with none."""
    rng = np.random.default_rng(seed)
    gone = np.arange(graph.shape[1]) >= rng.integers(0, graph.shape[1] + 1, len(graph))[:, None]
    return np.where(gone, -1, graph)


def take(walker, batch_size):
    return disjoint(walker, batch_size, lambda _: None)


def sample(walker, batch_size, num_batches):
    return independent(walker, batch_size, num_batches, lambda _: None)


@pytest.mark.parametrize(("walk", "restart"), WAYS)
@pytest.mark.parametrize(("n", "k", "size"), [(60, 4, 7), (50, 1, 8), (40, 39, 16)])
@pytest.mark.parametrize("short", [False, True])
def test_batches_of_plain_python(walk, restart, n, k, size, short):
    graph = random_graph(n, k, seed=n)
    if short:
        graph = shorten(graph)
    walker = make_walker(graph, walk, restart)
    plain = Plain(walker)
    expected, taken = [], set()
    for index in range(-(-n // size)):
        expected += plain.batch(min(size, n - len(expected)), index, taken, sampling=False)
        taken = set(expected)
    found = take(walker, size)
    assert found.tolist() == expected

    plain = Plain(walker)
    expected = [row for index in range(9) for row in plain.batch(size, index, (), sampling=True)]
    found = sample(walker, size, 9)
    assert found.tolist() == expected

    for wanted in (n - n % size, n):
        rows, left = complete(walker, size, wanted, lambda _: None)
        assert (rows.tolist(), left.tolist()) == Plain(walker).complete(size, wanted)
        assert len({*rows.tolist(), *left.tolist()}) == n


@pytest.mark.parametrize("restart", [0.2, 0.7])
def test_batches_have_the_law_of_algorithm_3(restart):
    """There, a restart is a step that adds no row. Here, it is drawn before each move."""
    graph, draw = random_graph(8, 3), random.Random(0)

    def algorithm_3(start):
        found, here = [], start
        while len(found) < 4:
            if here not in found:
                found.append(here)
            here = start if draw.random() < restart else draw.choice(graph[here])
        return found

    expected, drawn = np.zeros((8, 8)), np.zeros((8, 8))
    for start in range(8):
        for _ in range(2000):
            expected[start, algorithm_3(start)] += 1
    for batch in sample(make_walker(graph, restart=restart), 4, 16_000).reshape(-1, 4):
        drawn[batch[0], batch] += 1
    expected, drawn = (one / one.diagonal()[:, None] for one in (expected, drawn))
    np.testing.assert_allclose(drawn, expected, atol=0.06)  # 4 standard errors


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
    graph = random_graph(n - 10, 3)
    return np.vstack([graph, np.tile([0, 1, 2], (10, 1))])


@pytest.mark.parametrize("make", [star, chain, two_cliques, pairs, unreachable])
@pytest.mark.parametrize(("walk", "restart"), WAYS)
def test_awkward_graphs_end_in_a_partition(make, walk, restart):
    walker = make_walker(make(62), walk, restart)
    for size in (2, 9, 62):
        found = take(walker, size)
        assert sorted(found) == list(range(62))
        drawn = sample(walker, size, 5).reshape(5, size)
        assert all(len(set(batch.tolist())) == size for batch in drawn)


@pytest.mark.parametrize("walk", KINDS)
def test_a_batch_stays_in_its_clique(walk):
    found = take(make_walker(two_cliques(64), walk=walk), 32)
    for batch in np.split(found // 32, 2):
        assert len(set(batch.tolist())) == 1


def test_restart_one_takes_neighbours_of_the_start():
    """Section 4.3: the walk becomes the nearest-neighbour sampler, and does not stand still."""
    graph = random_graph(300, 40)
    walker = make_walker(graph, restart=1.0)
    for batch in sample(walker, 30, 50).reshape(50, 30):
        assert set(batch[1:]) <= set(graph[batch[0]])


def test_breadth_first_takes_the_nearest():
    graph = random_graph(300, 40)
    for batch in sample(make_walker(graph, walk="bfs"), 30, 50).reshape(50, 30):
        assert np.array_equal(batch[1:], graph[batch[0]][:29])


def test_starts_of_independent_batches_are_uniform():
    graph = random_graph(20, 3)
    starts = sample(make_walker(graph), 4, 4000).reshape(4000, 4)[:, 0]
    counts = np.bincount(starts, minlength=20)
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # 19 degrees, p = 0.001


def test_neighbours_are_chosen_alike():
    """Row 0 has four neighbours; batches of two that begin there."""
    graph = np.array([[1, 2, 3, 4]] + [[0, 5, 6, 7]] * 9)
    batches = sample(make_walker(graph), 2, 40_000).reshape(-1, 2)
    second = batches[batches[:, 0] == 0, 1]
    shares = np.bincount(second, minlength=5)[1:5] / len(second)
    np.testing.assert_allclose(shares, [0.25] * 4, atol=0.03)


def test_threads_and_calls_do_not_matter(use_threads, monkeypatch):
    graph = random_graph(200, 6)
    walker = make_walker(graph)
    found = []
    for threads, at_once in ((1, 256), (2, 3), (3, 1)):
        use_threads(threads)
        monkeypatch.setattr(walks, "_AT_ONCE", at_once)
        found.append((take(walker, 7), sample(walker, 7, 50)))
    for other in found[1:]:
        for one, again in zip(found[0], other, strict=True):
            assert np.array_equal(one, again)
