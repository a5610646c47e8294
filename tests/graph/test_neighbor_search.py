"""The search for neighbours in both directions against float64 products, sorted: bit by bit."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.data.answers import answers_of
from batchplan.graph import neighbor_search, neighbors
from batchplan.graph.neighbors import neighbors_both_ways
from batchplan.guard.guard import make_guard
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu")


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def screening(request, monkeypatch):
    """Both types to screen in, and several tiles of small data."""
    monkeypatch.setattr(neighbors, "screening_dtype", lambda _device: request.param)
    monkeypatch.setattr(neighbor_search, "TILE", 64)
    return request.param


def best(S, allowed, k):
    """The k largest allowed of each row, of equal ones the lower column; -1 and -inf for none."""
    S = np.where(allowed, S, -np.inf)
    order = np.argsort(-S, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(S, order, axis=1)
    return np.where(np.isinf(scores), -1, order), scores


def answered(embeddings):
    """bool (N, N): whether another row has the anchor of one and the positive of the other."""
    sides = (side.rows(0, embeddings.num_rows) for side in (embeddings.x, embeddings.y))
    x, y = ((side[:, None] == side).all(axis=2).astype(np.float32) for side in sides)
    known = x @ y.T > 0
    return known | known.T


def check(embeddings, k, S, guard=None, similarity="cosine", below=None):
    n = len(S)
    allowed = ~np.eye(n, dtype=bool) if below is None else below
    if guard is not None and below is None:
        for codes in guard.apart.codes:
            allowed &= (codes[:, None] != codes) | (codes < 0)[:, None]
        allowed &= ~answered(embeddings)
        if guard.ceilings is not None:
            lowest = np.minimum(guard.ceilings[:, None], guard.ceilings)
            allowed &= np.maximum(S, S.T) < lowest
    found = neighbors_both_ways(embeddings, k, CPU, similarity=similarity, guard=guard)
    sides = (S, S.T) if embeddings.paired else (S,)
    assert len(found) == len(sides)
    for some, side in zip(found, sides, strict=True):
        indices, scores = best(side, allowed, k)
        assert np.array_equal(some.similarities, scores)
        assert np.array_equal(some.indices, indices)
    forward = neighbors.nearest_neighbors(embeddings, k, CPU, similarity=similarity, guard=guard)
    assert np.array_equal(forward.indices, found[0].indices)
    assert np.array_equal(forward.similarities, found[0].similarities)


@pytest.mark.parametrize(("k", "similarity"), [(1, "dot"), (9, "cosine"), (None, "dot")])
def test_all_data(embeddings, brute, screening, k, similarity):
    k = embeddings.num_rows - 1 if k is None else k
    check(embeddings, k, brute.similarities(embeddings, similarity), None, similarity)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [2, 3, 63, 64, 65, 129])
def test_any_number_of_rows(screening, brute, paired, n):
    x, y = np.random.default_rng(n).standard_normal((2, n, 5)).astype(np.float32)
    embeddings = Embeddings.from_arrays(x, y if paired else None)
    for k in {1, n // 2, n - 1} - {0}:
        check(embeddings, k, brute.similarities(embeddings))


@pytest.mark.parametrize("name", ["gaussian", "integers", "duplicates", "single", "hubs"])
def test_guesses_that_are_too_high(screening, brute, data, monkeypatch, name):
    """Nearly all rows must be searched a second time."""
    monkeypatch.setattr(neighbor_search, "_rank", lambda *_: 1)
    second = []
    sweep = neighbor_search._sweep
    monkeypatch.setattr(
        neighbor_search, "_sweep", lambda *a: (second.append(len(a[1])), sweep(*a))[1]
    )
    embeddings = data(name)
    check(embeddings, 20, brute.similarities(embeddings))
    assert len(second) > 2


@pytest.mark.parametrize("name", ["integers", "duplicates", "single", "related", "hubs"])
@pytest.mark.parametrize(
    "limit",
    [{}, {"relative_margin": 0.1}, {"absolute_margin": 0.1}, {"max_score": 0.3}, {"max_score": -2}],
    ids=str,
)
def test_guards(screening, brute, data, name, limit):
    embeddings = data(name)
    n = embeddings.num_rows
    groups = np.random.default_rng(0).integers(-1, 6, n)
    guard = make_guard(embeddings, CPU, groups=[groups], answers=answers_of(embeddings), **limit)
    S = brute.similarities(embeddings)
    for k in (5, n - 1):
        check(embeddings, k, S, guard)


@pytest.mark.parametrize("name", ["integers", "duplicates", "single", "related"])
@pytest.mark.parametrize("limit", [{"relative_margin": 0.1}, {"max_score": 0.3}], ids=str)
def test_a_reference_judges(screening, brute, data, name, limit):
    """Of other dimensions, and in each direction."""
    embeddings = data(name)
    n = embeddings.num_rows
    sides = np.random.default_rng(1).standard_normal((1 + embeddings.paired, n, 7))
    judge = Embeddings.from_arrays(*sides.astype(np.float16))
    guard = make_guard(embeddings, CPU, **limit, reference=judge)
    assert (guard.reference, len(guard.ceilings)) == (judge, n)
    S, J = brute.similarities(embeddings), brute.similarities(judge)
    own = np.diag(J)
    ceilings = own - np.abs(own) * limit.get("relative_margin", 0)
    ceilings = np.full(n, 0.3) if "max_score" in limit else ceilings
    below = np.maximum(J, J.T) < np.minimum(ceilings[:, None], ceilings)
    for k in (5, n - 1):
        check(embeddings, k, S, guard, below=below & ~np.eye(n, dtype=bool))


@pytest.mark.parametrize("name", ["integers", "related", "hubs"])
def test_ceilings_that_are_similarities(screening, brute, data, name):
    """s_ji alone decides about some pairs, and is just at the ceiling of others."""
    embeddings = data(name)
    S = brute.similarities(embeddings)
    for ceiling in np.quantile(S, [0.5, 0.9, 0.99], method="nearest"):
        guard = make_guard(
            embeddings, CPU, answers=answers_of(embeddings), max_score=float(ceiling)
        )
        below = ceiling > S
        alone = below & ~below.T
        assert alone.any() or not embeddings.paired
        check(embeddings, 30, S, guard)


def test_long_rows(screening, brute):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 150, 8)) * 10.0 ** rng.uniform(-15, 17, (2, 150, 1))
    embeddings = Embeddings.from_arrays(x.astype(np.float32), y.astype(np.float32))
    check(embeddings, 12, brute.similarities(embeddings, "dot"), None, "dot")


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_equal_similarities(screening, brute, value):
    x = np.full((300, 4), 1.0, np.float32)
    embeddings = Embeddings.from_arrays(x, value * x)
    check(embeddings, 7, brute.similarities(embeddings, "dot"), None, "dot")


def test_blocks_of_equal_rows(screening, brute):
    """Each block is longer than a tile, and the lower names win."""
    rows = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    kinds = np.random.default_rng(1).integers(3, size=500)
    embeddings = Embeddings.from_arrays(rows[kinds], rows[kinds[::-1]])
    check(embeddings, 40, brute.similarities(embeddings))
    check(Embeddings.from_arrays(rows[kinds]), 40, brute.similarities(
        Embeddings.from_arrays(rows[kinds])
    ))  # fmt: skip


@pytest.mark.parametrize("paired", [False, True])
def test_threads_do_not_matter(use_threads, paired):
    x, y = np.random.default_rng(0).standard_normal((2, 2500, 24)).astype(np.float32)
    x[1000:1300] = x[1000]  # ties, over a bound of tiles
    embeddings = Embeddings.from_arrays(x, y if paired else None)
    guard = make_guard(embeddings, CPU, answers=answers_of(embeddings), relative_margin=0.05)
    results = []
    for threads in (1, 2, 5):
        use_threads(threads)
        both = neighbors_both_ways(embeddings, 20, CPU, guard=guard)
        results.append([(one.indices.tobytes(), one.similarities.tobytes()) for one in both])
        assert torch.get_num_threads() == threads
    assert results[0] == results[1] == results[2]
