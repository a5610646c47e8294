"""visit_edges shows the edges of the whole product, sorted; each once, in any memory."""

import numpy as np
import pytest

from batchplan import InputError, ResourceError
from batchplan.data import Embeddings
from batchplan.graph import EdgeBudget, build_graph, construction, visit_edges
from batchplan.graph.sieve import Ranks
from batchplan.graph.threshold import Bracket
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu")


class Seen:
    """A visitor that keeps what it is shown."""

    def __init__(self):
        self.parts = []

    def add(self, rows, columns):
        assert rows.dtype == columns.dtype == np.int64
        self.parts.append((rows.copy(), columns.copy()))

    def edges(self):
        rows, columns = map(np.concatenate, zip(*self.parts, strict=True))
        order = np.lexsort((columns, rows))
        return rows[order].tolist(), columns[order].tolist()


class Notes:
    """An observer that counts stages and notes."""

    def __init__(self):
        self.begun = []

    def start(self, stage, total):
        self.begun.append(stage)

    def advance(self, stage, steps): ...

    def finish(self, stage, seconds): ...

    def note(self, name, value):
        self.begun.append(name)


def check(brute, embeddings, budget, similarity="cosine", runtime=CPU):
    edges = budget.edges(embeddings.num_rows)
    seen = visit_edges(embeddings, budget, runtime, Seen, similarity=similarity)
    expected = brute.largest(brute.similarities(embeddings, similarity), edges)
    assert seen.edges() == tuple(part.tolist() for part in expected)


def little_room(monkeypatch, width, pairs=None):
    """Let there be room for so many rows of y, and for so many pairs in doubt, N at least."""

    def share(task, runtime):
        n = task.embeddings.num_rows
        return min(n, width), max(n, pairs or 0)

    monkeypatch.setattr(construction, "_share", share)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_equals_brute_force(embeddings, brute, screening, similarity):
    for quantile in (0.05, 0.7, 0.98):
        check(brute, embeddings, EdgeBudget(quantile), similarity)


@pytest.mark.parametrize("width", [64, 1000])
def test_with_little_room(embeddings, brute, screening, monkeypatch, width):
    """Pairs in doubt are too many to keep; among them may be thousands of equal scores."""
    little_room(monkeypatch, width)
    for quantile in (1e-9, 0.5, 0.98):
        check(brute, embeddings, EdgeBudget(quantile))


@pytest.mark.parametrize("name", ["integers", "gaussian"])
def test_passes(data, brute, monkeypatch, name):
    """One, unless pairs in doubt are too many; then few, even if most scores are equal."""
    observer = Notes()
    runtime = Runtime("cpu", observer=observer)
    check(brute, data(name), EdgeBudget(0.6), runtime=runtime)
    assert observer.begun == ["prepare", "graph"]
    little_room(monkeypatch, 1000)
    check(brute, data(name), EdgeBudget(0.6), runtime=runtime)
    assert set(observer.begun) == {"prepare", "graph"}
    assert 2 < observer.begun.count("graph") <= 5


@pytest.mark.parametrize("width", [64, 1000])
@pytest.mark.parametrize("name", ["integers", "hubs", "sorted_clusters", "related"])
@pytest.mark.parametrize("steps", [-3000, -50, 50, 1000])
def test_wrong_guesses(data, brute, screening, monkeypatch, name, width, steps):
    """The first bracket ends above the threshold, or below it."""
    little_room(monkeypatch, width)
    embeddings, budget = data(name), EdgeBudget(0.95)
    S = brute.similarities(embeddings)
    scores = np.unique(S[~np.eye(len(S), dtype=bool)])
    threshold = S[brute.largest(S, budget.edges(len(S)))].min()
    place = np.clip(np.searchsorted(scores, threshold) + steps, 0, len(scores) - 1)
    ends = sorted([float(scores[place]), float(scores[-1] if steps > 0 else scores[0])])
    right, asked = construction.bracket, []

    def guess(sample, edges, pairs, widening):
        asked.append(widening)
        return Bracket(*ends) if len(asked) == 1 else right(sample, edges, pairs, widening)

    monkeypatch.setattr(construction, "bracket", guess)
    check(brute, embeddings, budget)
    assert asked[:2] == [1, 4]


@pytest.fixture
def crowded(monkeypatch):
    """Blocks have far more pairs than were expected."""
    make = construction._Task

    def small(embeddings, normalize, edges, _spare, dtype):
        return make(embeddings, normalize, edges, embeddings.num_rows, dtype)

    monkeypatch.setattr(construction, "_Task", small)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("tile", [(7, 64), (64, 192)])
@pytest.mark.parametrize("name", ["integers", "duplicates", "identical", "hubs"])
def test_crowded_blocks(data, brute, monkeypatch, name, tile):
    monkeypatch.setattr(construction, "_TILE", tile)
    for quantile in (0.5, 0.98):
        check(brute, data(name), EdgeBudget(quantile))


@pytest.mark.usefixtures("crowded")
def test_the_rest_of_a_crowded_block_after_as_many_certain_pairs_as_edges(brute, monkeypatch):
    """A guess takes row 0 for certain, which has as many pairs as there are edges; row 1 has better
    ones."""
    x, y = np.zeros((40, 2), np.float32), np.ones((40, 2), np.float32)
    x[:, 0] = [2, 3, *[-1] * 38]
    right, asked = construction.bracket, []

    def guess(sample, edges, pairs, widening):
        asked.append(widening)
        return Bracket(0.5, 1.5) if len(asked) == 1 else right(sample, edges, pairs, widening)

    monkeypatch.setattr(construction, "bracket", guess)
    check(brute, Embeddings.from_arrays(x, y), EdgeBudget(1 - 1 / 40), "dot")
    assert asked[:2] == [1, 4]


def test_the_edges_of_a_graph(data, brute, monkeypatch):
    """As they are shown on CUDA devices."""
    monkeypatch.setattr(construction, "_SHOWN", 7)
    graph = build_graph(data("hubs"), EdgeBudget(0.95), CPU, weights=False)
    seen = construction._shown(graph, Seen())
    assert all(len(rows) <= 7 for rows, _ in seen.parts)
    again = visit_edges(data("hubs"), EdgeBudget(0.95), CPU, Seen)
    assert seen.edges() == again.edges()


@pytest.mark.parametrize(
    "scores", [(-np.inf, np.inf), (-1.0, 0.5), (0.0, 0.0), (-(2.0**-149), 2.0**-149), (0.25, 0.25)]
)
def test_ranks_of_scores(scores):
    ranks = Ranks.of(Bracket(*scores))
    assert (ranks.scores().lower, ranks.scores().upper) == scores
    assert Ranks.of(Bracket(-0.0, -0.0)) == Ranks.of(Bracket(0.0, 0.0))


def test_refusals(data):
    zero = Embeddings.from_arrays(np.eye(4, 3, dtype=np.float32))
    with pytest.raises(InputError, match="zeros"):
        visit_edges(zero, EdgeBudget(0.5), CPU, Seen)
    with pytest.raises(InputError, match="neighbors"):
        visit_edges(data("line"), EdgeBudget(neighbors=90), CPU, Seen)
    with pytest.raises(ResourceError, match=r"^the edges of .* 90 rows x 1 need .* --sample$"):
        visit_edges(data("line"), EdgeBudget(0.5), Runtime("cpu", memory=1000), Seen)
