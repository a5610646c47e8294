"""The graph as CUDA devices build it, run on the CPU by Triton's interpreter: the same bytes."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.errors import ResourceError
from batchplan.graph import cuda
from batchplan.planners.papers.gcbs import construction
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.gcbs.threshold import Bracket
from batchplan.runtime import Runtime

CPU = Runtime(device="cpu")

pytestmark = pytest.mark.usefixtures("device_code")


def sizes(monkeypatch, spare=None, **constants):
    """Make the memory for strips, and for candidates beyond the budget, as small as it may be."""
    from batchplan.graph.cuda import sweep

    for name, size in constants.items():
        monkeypatch.setattr(sweep, name, size)
    make = construction._Task

    def small(embeddings, normalize, edges, usual, dtype):
        return make(embeddings, normalize, edges, spare or usual, dtype)

    monkeypatch.setattr(construction, "_Task", small)


def workers(monkeypatch, count):
    """Deal to so many devices, all of which are the CPU."""
    monkeypatch.setattr(Runtime, "torch_devices", lambda _: [torch.device("cpu")] * count)


def test_equals_brute_force(embeddings, brute):
    similarity = "dot" if embeddings.dim == 24 else "cosine"
    edges = brute.count(embeddings, 0.97)
    graph = build_graph(embeddings, edges, CPU, similarity=similarity)
    brute.check(graph, embeddings, edges, similarity)


def test_in_half_precision(data, brute, monkeypatch):
    monkeypatch.setattr(construction, "screening_dtype", lambda _device: torch.float16)
    for name in ("related", "line"):
        graph = build_graph(data(name), brute.count(data(name), 0.95), CPU)
        brute.check(graph, data(name), graph.num_edges)


@pytest.mark.parametrize("quantile", [1e-9, 1 - 1e-9])
def test_budgets_at_the_ends(data, brute, quantile):
    embeddings = data("integers")
    edges = brute.count(embeddings, quantile)
    graph = build_graph(embeddings, edges, CPU, weights=False)
    assert graph.weights is None
    brute.check(graph, embeddings, edges)


@pytest.mark.parametrize("n", [2, 33])
def test_few_rows(data, brute, n):
    graph = build_graph(data("gaussian", n, 7), n, CPU)
    brute.check(graph, data("gaussian", n, 7), n)


@pytest.mark.parametrize("name", ["integers", "single"])
def test_devices_and_strips_change_nothing(data, brute, monkeypatch, name):
    from batchplan.graph.cuda import sweep

    embeddings = data(name)
    edges = brute.count(embeddings, 0.95)
    results = {brute.bytes(build_graph(embeddings, edges, CPU))}
    monkeypatch.setattr(sweep, "_height", lambda *_: 60)
    for count in (1, 3):
        workers(monkeypatch, count)
        results.add(brute.bytes(build_graph(embeddings, edges, CPU)))
    monkeypatch.undo()
    results.add(brute.bytes(build_graph(embeddings, edges, CPU)))  # as the CPU does it
    assert len(results) == 1


def test_rows_of_x_that_are_not_kept(data, brute, monkeypatch):
    embeddings = data("related")
    edges = brute.count(embeddings, 0.95)
    monkeypatch.setitem(construction._BYTES, "cuda", construction._Bytes(10, 24, 512, 1 << 60))
    brute.check(build_graph(embeddings, edges, CPU), embeddings, edges)


@pytest.mark.parametrize("name", ["integers", "identical", "sorted_clusters"])
def test_strips_with_far_more_candidates_than_fit(data, brute, monkeypatch, name):
    embeddings = data(name)
    edges = brute.count(embeddings, 0.8)
    n = embeddings.num_rows
    sizes(monkeypatch, spare=n, _LISTED=2000, _KEPT=4000)
    workers(monkeypatch, 2)
    brute.check(build_graph(embeddings, edges, CPU), embeddings, edges)


def test_a_wrong_guess_is_widened(data, brute, monkeypatch):
    embeddings = data("uniform")
    edges = brute.count(embeddings, 0.95)
    similarities = brute.similarities(embeddings)
    guesses = [Bracket(float(np.quantile(similarities, 0.97)), np.inf), Bracket(-np.inf, np.inf)]
    monkeypatch.setattr(construction, "bracket", lambda *_: guesses.pop(0))
    brute.check(build_graph(embeddings, edges, CPU), embeddings, edges)
    assert not guesses


@pytest.mark.parametrize("rows", ["x", "xy"])
def test_rows_of_zeros_under_dot(brute, rows):
    x, y = np.zeros((2, 20, 3), np.float32)
    if rows == "x":
        y += np.random.default_rng(0).standard_normal(y.shape).astype(np.float32)
    embeddings = Embeddings.from_arrays(x, y)
    graph = build_graph(embeddings, 190, CPU, similarity="dot")
    brute.check(graph, embeddings, 190, "dot")


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e15])
def test_products_of_any_size_under_dot(brute, scale):
    x = np.random.default_rng(0).standard_normal((65, 6)) * scale
    embeddings = Embeddings.from_arrays(x.astype(np.float32))
    graph = build_graph(embeddings, 416, CPU, similarity="dot")
    brute.check(graph, embeddings, graph.num_edges, "dot")


def test_triton_is_missing(data, monkeypatch):
    monkeypatch.setattr(cuda, "find_spec", lambda _name: None)
    with pytest.raises(ResourceError, match="pip install triton"):
        build_graph(data("line"), 4005, CPU)
