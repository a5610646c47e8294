"""Guards against all pairs looked at one by one, in ceilings, lists of neighbours and graphs."""

from itertools import cycle, product

import numpy as np
import pytest
import torch

import batchplan
from batchplan.data.answers import answers_of
from batchplan.errors import InputError, ResourceError
from batchplan.graph import neighbor_search
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.apart import Apart
from batchplan.guard.guard import Guard, guard_of, make_guard, usual_of
from batchplan.guard.options import GuardOptions
from batchplan.planners.papers.gcbs import similarity_graph
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.rwr.proximity import draw_candidates, proximity_graph
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu")
EDGES = 6705  # three in ten of all pairs of 150 rows


def data(kind, n=150, d=10):
    """x, y and the similarity: whole numbers make exact products and pairs that hit a ceiling."""
    rng = np.random.default_rng(3)
    if kind == "whole":
        x, y = rng.integers(-2, 3, (2, n, d)).astype(np.float32)
        return x, y, "dot"
    x = rng.standard_normal((n, d)) + 0.5
    y = x + 0.8 * rng.standard_normal((n, d))
    y[:20] *= -1  # whose own pair is less similar than most
    x[40:50], y[60:65] = x[30:40], y[50:55]
    if kind == "one":
        return x.astype(np.float16), None, "cosine"
    return x.astype(np.float32), y.astype(np.float32), "cosine" if kind == "cosine" else "dot"


def groups_of(n):
    return np.random.default_rng(4).integers(-1, n // 4, n)


def guard_with_equal_rows(embeddings, duplicates=True, **options):
    answers = answers_of(embeddings) if duplicates else None
    return make_guard(embeddings, CPU, answers=answers, **options)


def similarities(x, y, similarity):
    """float64 (N, N)."""
    a, b = x.astype(np.float64), (x if y is None else y).astype(np.float64)
    if similarity == "cosine":
        a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    return a @ b.T


def broken(
    x, y, similarity,
    relative_margin=None, absolute_margin=None, max_score=None, groups=(), duplicates=True,
):  # fmt: skip
    """bool (N, N), symmetric: the definition, of all pairs."""
    S = similarities(x, y, similarity)
    own = np.diag(S)
    highest = np.maximum(S, S.T)
    found = np.zeros(S.shape, bool)
    ceilings = []
    if relative_margin is not None:
        ceilings.append(own - np.abs(own) * relative_margin)
    if absolute_margin is not None:
        ceilings.append(own - absolute_margin)
    if max_score is not None:
        ceilings.append(np.full(len(own), max_score))
    for ceiling in ceilings:
        found |= highest >= np.minimum(ceiling[:, None], ceiling)
    for codes in groups:
        found |= (codes[:, None] == codes) & (codes >= 0)
    for side in ([x] if y is None else [x, y]) if duplicates else []:
        found |= (side[:, None] == side).all(axis=2)
    np.fill_diagonal(found, False)
    return found


LIMITS = [
    {},
    {"relative_margin": 0.1},
    {"relative_margin": 0.7, "duplicates": False},
    {"absolute_margin": 0.05},
    {"max_score": 0.3},
    {"absolute_margin": 0.0, "groups": (groups_of(150),)},
    {"groups": (groups_of(150), groups_of(150)[::-1].copy()), "duplicates": False},
]
KINDS = ["whole", "cosine", "dot", "one"]
every = pytest.mark.parametrize("kind", KINDS)
limits = pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: "-".join(limit) or "plain")


def kinds_and_limits_with(name, *values):
    """All of both, and in turns one of the values."""
    cases = zip(product(KINDS, LIMITS), cycle(values), strict=False)
    return pytest.mark.parametrize(("kind", "limit", name), [(*case, one) for case, one in cases])


def made(kind, limit):
    x, y, similarity = data(kind)
    if kind == "whole":  # limits that float32 holds exactly, and whole numbers may hit
        exact = {"relative_margin": 0.5, "absolute_margin": 2.0, "max_score": 3.0}
        limit = {name: exact.get(name, value) for name, value in limit.items()}
    embeddings = batchplan.load_embeddings(x, y)
    guard = guard_with_equal_rows(embeddings, similarity=similarity, **limit)
    return embeddings, similarity, guard, broken(x, y, similarity, **limit)


def values_of(embeddings, similarity):
    n = embeddings.num_rows
    x, y = (side.rows(0, n) for side in (embeddings.x, embeddings.y))
    return similarities(x, y, similarity)


@every
@pytest.mark.parametrize(
    "limit", [{"relative_margin": 0.1}, {"absolute_margin": 0.05}, {"max_score": 0.7}]
)
def test_ceilings(monkeypatch, kind, limit):
    monkeypatch.setattr("batchplan.guard.guard._ROWS_AT_ONCE", 64)
    x, y, similarity = data(kind)
    embeddings = batchplan.load_embeddings(x, y)
    guard = guard_with_equal_rows(embeddings, similarity=similarity, **limit)
    own = np.diag(similarities(x, y, similarity))
    assert guard.ceilings.dtype == np.float32
    expected = {
        "relative_margin": own - np.abs(own) * 0.1,
        "absolute_margin": own - 0.05,
        "max_score": np.full(len(own), 0.7),
    }[next(iter(limit))]
    np.testing.assert_allclose(guard.ceilings, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("limit", [{"relative_margin": 0.1}, {"absolute_margin": 0.05}])
def test_no_ceiling_is_below_that_of_a_usual_row(similarity, limit):
    """A row unlike its own pair is not kept apart from all rows that are more like it."""
    x, y, _ = data("cosine")
    embeddings = batchplan.load_embeddings(x, y)
    options = GuardOptions(similarity=similarity, **limit)
    strict, usual = (guard_of(embeddings, options, CPU, strict=way) for way in (True, False))
    middle = np.sort(strict.ceilings)[(len(x) - 1) // 2]
    expected = np.maximum(strict.ceilings, middle)
    np.testing.assert_allclose(usual.ceilings, expected, rtol=1e-5, atol=1e-5)
    assert (usual.ceilings > strict.ceilings).mean() > 0.4
    capped = GuardOptions(similarity=similarity, max_score=0.5)
    assert (guard_of(embeddings, capped, CPU).ceilings == 0.5).all()


def test_the_usual_row_of_large_data_is_that_of_some(monkeypatch):
    x, y, _ = data("cosine")
    embeddings = batchplan.load_embeddings(x, y)
    whole = usual_of(embeddings, GuardOptions(relative_margin=0.1))
    monkeypatch.setattr("batchplan.guard.ceilings.USUAL_ROWS", 30)
    some = usual_of(embeddings, GuardOptions(relative_margin=0.1))
    fifth = batchplan.load_embeddings(x[::5].copy(), y[::5].copy())
    assert some != whole
    assert some == usual_of(fifth, GuardOptions(relative_margin=0.1))


def test_codes_that_repeat_nowhere_are_left_out():
    rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    embeddings = batchplan.load_embeddings(rows, rows[::-1].copy())
    alone = np.arange(30)
    assert not make_guard(embeddings, CPU, groups=[alone, np.full(30, -1)]).active
    guard = make_guard(embeddings, CPU, groups=[alone, alone // 2])
    assert guard.active
    assert len(guard.apart.codes) == 1
    assert np.array_equal(guard.apart.codes, [alone // 2])
    assert Guard().apart.codes.shape == (0, 0)
    rows[3] = rows[7]
    twice = guard_with_equal_rows(batchplan.load_embeddings(rows, rows[::-1].copy()))
    assert [np.flatnonzero(codes >= 0).tolist() for codes in twice.apart.codes] == [
        [3, 7],
        [22, 26],
    ]
    assert len(guard_with_equal_rows(batchplan.load_embeddings(rows)).apart.codes) == 1
    assert not make_guard(batchplan.load_embeddings(rows), CPU).active


def check_lists(indices, values, S, allowed, k, exact):
    """Each list is the k largest of the allowed; whole numbers decide ties too."""
    wanted = np.where(allowed, S, -np.inf)
    order = np.argsort(-wanted, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(wanted, order, 1)
    assert ((indices < 0) == np.isinf(best)).all()
    found = np.where(indices < 0, -np.inf, np.take_along_axis(wanted, np.maximum(indices, 0), 1))
    np.testing.assert_allclose(found, best, atol=1e-5)
    np.testing.assert_allclose(values, best, atol=1e-5)
    if exact:
        assert np.array_equal(indices, np.where(np.isinf(best), -1, order))


@kinds_and_limits_with("k", 9, 149)
def test_neighbours(monkeypatch, kind, limit, k):
    monkeypatch.setattr(neighbor_search, "TILE", 64)
    check_neighbours(kind, limit, k)


@limits
@pytest.mark.usefixtures("device_code")
def test_neighbours_of_device_code(limit):
    check_neighbours("whole", limit, 9)


def check_neighbours(kind, limit, k):
    embeddings, similarity, guard, bad = made(kind, limit)
    found = nearest_neighbors(embeddings, k, CPU, similarity=similarity, guard=guard)
    allowed = ~bad & ~np.eye(150, dtype=bool)
    S = values_of(embeddings, similarity)
    check_lists(found.indices, found.similarities, S, allowed, k, kind == "whole")


@every
@limits
def test_candidates(kind, limit):
    embeddings, similarity, guard, bad = made(kind, limit)
    runtime = Runtime(device="cpu", seed=2)
    found = proximity_graph(embeddings, 60, 9, runtime, similarity=similarity, guard=guard)
    key = runtime.generator(2).integers(2**64, dtype=np.uint64)
    drawn, table = np.empty(60, np.int64), np.empty(128, np.int64)
    allowed = np.zeros((150, 150), bool)
    for row in range(150):
        draw_candidates(key, row, 150, drawn, table)
        allowed[row, drawn] = ~bad[row, drawn]
    S = values_of(embeddings, similarity)
    check_lists(found.indices, found.similarities, S, allowed, 9, kind == "whole")


@kinds_and_limits_with("device_code", False, True)
def test_edges(brute, monkeypatch, kind, limit, device_code):
    if device_code:
        monkeypatch.setattr(similarity_graph, "_allowed_cpu", similarity_graph._allowed_torch)
        monkeypatch.setattr(similarity_graph, "_EDGES", 100)
    monkeypatch.setattr(similarity_graph, "_ROWS", 32)
    embeddings, similarity, guard, bad = made(kind, limit)
    graph = build_graph(embeddings, EDGES, CPU, similarity=similarity)
    kept = graph.without(guard, embeddings, CPU, similarity=similarity)
    before, after = brute.edges(graph), brute.edges(kept)
    allowed = ~bad[before[0], before[1]]
    for part, left in zip(before, after, strict=True):
        assert np.array_equal(left, part[allowed])
    assert kept.threshold == graph.threshold
    if limit:
        assert kept.num_edges < graph.num_edges


def test_codes_need_no_weights():
    embeddings, similarity, _, _ = made("dot", {})
    guard = Guard(None, Apart.of((groups_of(150),), None))
    plain, weighted = (
        build_graph(embeddings, EDGES, CPU, similarity=similarity, weights=weights)
        for weights in (False, True)
    )
    one = plain.without(guard, embeddings, CPU)
    other = weighted.without(guard, embeddings, CPU)
    assert one.weights is None
    assert torch.equal(one.indices, other.indices)
    assert torch.equal(one.indptr, other.indptr)


def test_a_guard_of_nothing_changes_nothing():
    embeddings, similarity, _, _ = made("dot", {})
    graph = build_graph(embeddings, EDGES, CPU, similarity=similarity, weights=False)
    assert graph.without(Guard(), embeddings, CPU, similarity=similarity) is graph
    for find in (nearest_neighbors, lambda *a, **b: proximity_graph(a[0], 40, *a[1:], **b)):
        one = find(embeddings, 9, CPU, similarity=similarity)
        other = find(embeddings, 9, CPU, similarity=similarity, guard=Guard())
        assert np.array_equal(one.indices, other.indices)
        assert np.array_equal(one.similarities, other.similarities)


def test_a_graph_may_lose_every_edge():
    embeddings = batchplan.load_embeddings(np.ones((20, 3), np.float32))
    graph = build_graph(embeddings, 190, CPU, weights=False)
    empty = graph.without(guard_with_equal_rows(embeddings), embeddings, CPU)
    assert empty.num_edges == 0


@limits
def test_threads_do_not_matter(use_threads, limit):
    embeddings, similarity, guard, _ = made("cosine", limit)
    results = []
    for threads in (1, 2):
        use_threads(threads)
        near = nearest_neighbors(embeddings, 9, CPU, similarity=similarity, guard=guard)
        some = proximity_graph(embeddings, 60, 9, CPU, similarity=similarity, guard=guard)
        graph = build_graph(embeddings, EDGES, CPU, similarity=similarity)
        kept = graph.without(guard, embeddings, CPU, similarity=similarity)
        parts = [near.indices, near.similarities, some.indices, some.similarities]
        parts += [kept.indptr.numpy(), kept.indices.numpy(), kept.weights.numpy()]
        results.append(b"".join(part.tobytes() for part in parts))
    assert results[0] == results[1]


def test_refusals():
    rows = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    rows[4] = 0
    zero = batchplan.load_embeddings(rows)
    with pytest.raises(InputError, match="x: got 1 rows of zeros"):
        make_guard(zero, CPU, absolute_margin=0.1)
    make_guard(zero, CPU, absolute_margin=0.1, similarity="dot")
    make_guard(zero, CPU)
    huge = batchplan.load_embeddings(np.full((30, 4), 1e30, np.float32))
    with pytest.raises(InputError, match=r"x: got 30 rows of length up to 2\.0e\+30"):
        make_guard(huge, CPU, absolute_margin=0.1, similarity="dot")


def test_refuses_what_cannot_fit(monkeypatch):
    embeddings, similarity, guard, _ = made("cosine", {"absolute_margin": 0.1})
    graph = build_graph(embeddings, EDGES, CPU, similarity=similarity)
    monkeypatch.setattr(Runtime, "memory_left", lambda self, device=None: 8 * 150 * 10 - 1)
    with pytest.raises(ResourceError, match=r"guard: the rows of both sides need 12\.0 KB"):
        graph.without(guard, embeddings, CPU, similarity=similarity)
    graph.without(Guard(None, Apart.of((groups_of(150),), None)), embeddings, CPU)
