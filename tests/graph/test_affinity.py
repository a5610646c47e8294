"""The weights of the partitioned graph, from their formula in float64."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.data.rows import load_all_rows
from batchplan.errors import ResourceError
from batchplan.graph.affinity import Affinity, affinity_graph, neighbor_lists
from batchplan.guard.guard import Guard
from batchplan.runtime import Runtime

SAMPLE = 5  # the stream of the sampled rows
SAMPLED = 256


def made(x, y, lists, seed=0, batch_size=8, temperature=0.05, similarity="dot"):
    embeddings = Embeddings.from_arrays(x, y)
    cosine = similarity == "cosine"
    runtime = Runtime(device="cpu", seed=seed)
    device = runtime.torch_device()
    left = load_all_rows(embeddings.x, device, cosine)
    right = left if y is None else load_all_rows(embeddings.y, device, cosine)
    return affinity_graph(
        lists, left, right, runtime, batch_size=batch_size, temperature=temperature
    )


def expected(x, y, batch_size, temperature, seed=0):
    """float64 (N, N): what the loss of both rows, both ways, rises by when they meet."""
    y = x if y is None else y
    n = len(x)
    sample = np.sort(
        np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, SAMPLE]))).choice(
            n, min(SAMPLED, n), replace=False
        )
    )
    logits = x.astype(np.float64) @ y.astype(np.float64).T / temperature

    def backgrounds(logits):
        """log of the row's own term and B - 1 times the mean of the sampled others'."""
        own = np.diag(logits)
        drawn = logits[:, sample].copy()
        drawn[sample, np.arange(len(sample))] = -np.inf
        peak = np.maximum(own, drawn.max(axis=1))
        mean = np.exp(drawn - peak[:, None]).sum(axis=1) / len(sample)
        return peak + np.log(np.exp(own - peak) + (batch_size - 1) * mean)

    forth, back = backgrounds(logits), backgrounds(logits.T)
    rises = np.logaddexp(0, logits - forth[:, None]) + np.logaddexp(0, logits - back)
    return rises + rises.T


def noise(n, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def lists_of(n, k, seed=0, count=1):
    """Random rows, some of them -1, and never the row itself."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        others = np.argsort(rng.random((n, n)) + 9 * np.eye(n), axis=1)[:, :k]
        found.append(np.where(rng.random(others.shape) < 0.3, -1, others))
    return found


def dense(graph):
    out = np.zeros((graph.num_rows, graph.num_rows))
    rows = np.repeat(np.arange(graph.num_rows), np.diff(graph.indptr))
    out[rows, graph.indices] = graph.weights
    return out


def check_form(graph):
    """Sorted, unique, symmetric, without loops."""
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    assert graph.weights.dtype == np.float32
    assert graph.indptr[0] == 0
    assert graph.indptr[-1] == len(graph.indices) == len(graph.weights)
    for row in range(graph.num_rows):
        columns = graph.indices[graph.indptr[row] : graph.indptr[row + 1]]
        assert (np.diff(columns) > 0).all()
        assert row not in columns
    weights = dense(graph)
    assert np.array_equal(weights, weights.T)
    assert (graph.weights > 0).all()


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("batch_size", [2, 64])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [40, 400])
def test_weights(n, paired, batch_size, temperature):
    x, y = noise(n), noise(n, seed=1) if paired else None
    lists = lists_of(n, 5, count=1 + paired)
    graph = made(x, y, lists, 3, batch_size, temperature)
    check_form(graph)
    wanted = expected(x, y, batch_size, temperature, seed=3)
    pattern = np.zeros((n, n), bool)
    for one in lists:
        rows, places = np.nonzero(one >= 0)
        pattern[rows, one[rows, places]] = True
    pattern = pattern | pattern.T
    found = dense(graph)
    assert np.array_equal(found > 0, pattern)
    assert np.allclose(found[pattern], wanted[pattern], rtol=1e-4, atol=1e-9)


def test_the_seed_draws_the_sample():
    x, lists = noise(600), lists_of(600, 3)
    one, other = (made(x, None, lists, seed=seed) for seed in (0, 1))
    assert np.array_equal(one.indices, other.indices)
    assert not np.array_equal(one.weights, other.weights)


def test_cosine_is_of_unit_rows():
    x, lists = noise(50), lists_of(50, 4)
    lengths = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    found = dense(made(x, None, lists, similarity="cosine"))
    wanted = expected(x / lengths, None, 8, 0.05)
    assert np.allclose(found[found > 0], wanted[found > 0], rtol=1e-4)


@pytest.mark.parametrize("scale", [1e3, 1e9, 1e15])
def test_huge_products(scale):
    """Weights stay finite, and above 0."""
    x = noise(30) * np.float32(scale)
    graph = made(x, None, lists_of(30, 4))
    check_form(graph)
    assert np.isfinite(graph.weights).all()


def test_no_neighbour_at_all():
    graph = made(noise(7), None, [np.full((7, 3), -1)])
    check_form(graph)
    assert len(graph.indices) == 0


def test_two_rows():
    x = noise(2)
    graph = made(x, None, [np.array([[1], [0]])], batch_size=2)
    check_form(graph)
    assert np.allclose(dense(graph), expected(x, None, 2, 0.05) * (1 - np.eye(2)), rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_among(seed):
    graph = made(noise(60), None, lists_of(60, 6))
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(60, rng.integers(1, 60), replace=False))
    part = graph.among(rows)
    check_form(part)
    assert np.array_equal(dense(part), dense(graph)[np.ix_(rows, rows)])


def test_among_all_and_none():
    graph = made(noise(20), None, lists_of(20, 3))
    assert np.array_equal(dense(graph.among(np.arange(20))), dense(graph))
    assert graph.among(np.empty(0, np.int64)).num_rows == 0


@pytest.mark.parametrize("paired", [False, True])
def test_neighbor_lists(paired):
    x, y = noise(30), noise(30, seed=1) if paired else None
    lists = neighbor_lists(
        Embeddings.from_arrays(x, y), 4, Runtime(device="cpu"), similarity="dot", guard=Guard()
    )
    S = x @ (y if paired else x).T
    np.fill_diagonal(S, -np.inf)
    wanted = [np.argsort(-one, axis=1)[:, :4] for one in (S, S.T)][: 1 + paired]
    assert len(lists) == len(wanted)
    assert all(np.array_equal(*both) for both in zip(lists, wanted, strict=True))
    (most,) = neighbor_lists(
        Embeddings.from_arrays(x[:3]), 9, Runtime(device="cpu"), similarity="dot", guard=Guard()
    )
    assert most.shape == (3, 2)


def test_num_rows():
    empty = np.empty(0, np.int32)
    assert Affinity(np.zeros(6, np.int64), empty, np.empty(0, np.float32)).num_rows == 5


def test_a_graph_that_does_not_fit_is_refused(monkeypatch):
    x = torch.nn.functional.normalize(torch.randn(50, 4), dim=1)
    lists = [np.tile(np.arange(10), (50, 1))] * 2
    monkeypatch.setattr(Runtime, "memory_left", lambda self, device=None: 140 * 50 * 13)
    with pytest.raises(
        ResourceError, match=r"10 neighbours of each of 50 rows .* fewer --neighbors"
    ):
        affinity_graph(lists, x, x, Runtime("cpu"), batch_size=8, temperature=0.05)
