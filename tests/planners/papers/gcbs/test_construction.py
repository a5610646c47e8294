"""build_graph against the whole product, sorted."""

import numpy as np
import pytest
import torch

from batchplan import InputError
from batchplan.data import Embeddings
from batchplan.planners.papers.gcbs import construction
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.planners.papers.gcbs.threshold import Bracket
from batchplan.runtime import Runtime
from tests.observing import Observer

CPU = Runtime(device="cpu")


def edges_only(monkeypatch, spare=None):
    """Make the store of candidates as small as it may be: the budget and one row."""
    make = construction._Task

    def small(embeddings, normalize, edges, _spare, dtype):
        return make(embeddings, normalize, edges, spare or embeddings.num_rows, dtype)

    monkeypatch.setattr(construction, "_Task", small)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_equals_brute_force(embeddings, brute, screening, similarity):
    for quantile in (0.7, 0.98):
        edges = brute.count(embeddings, quantile)
        graph = build_graph(embeddings, edges, CPU, similarity=similarity)
        brute.check(graph, embeddings, edges, similarity)
        pattern = build_graph(embeddings, edges, CPU, similarity=similarity, weights=False)
        assert pattern.weights is None
        brute.check(pattern, embeddings, edges, similarity)


@pytest.mark.parametrize("quantile", [1e-9, 0.05, 0.5, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("name", ["gaussian", "integers", "identical"])
def test_budgets_at_the_ends(data, brute, name, quantile):
    embeddings = data(name)
    edges = brute.count(embeddings, quantile)
    graph = build_graph(embeddings, edges, CPU, weights=False)
    brute.check(graph, embeddings, edges)


@pytest.mark.parametrize("neighbors", [1, 7, 202])
def test_neighbors(data, brute, neighbors):
    graph = build_graph(data("related"), neighbors * 203, CPU)
    brute.check(graph, data("related"), neighbors * 203)


@pytest.mark.parametrize("n", [2, 3, 31, 32, 33])
@pytest.mark.parametrize("d", [1, 7])
def test_few_rows(data, brute, screening, n, d):
    for name in ("single", "gaussian", "line"):
        embeddings = data(name, n, d)
        for edges in range(1, min(n * (n - 1), 7)):
            graph = build_graph(embeddings, edges, CPU)
            brute.check(graph, embeddings, edges)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("name", ["integers", "hubs", "sorted_clusters", "uniform"])
def test_tiles_and_threads_change_nothing(data, brute, use_threads, monkeypatch, name, weights):
    embeddings = data(name)
    edges = brute.count(embeddings, 0.95)
    results = set()
    for tile, count in [((1024, 1024), 1), ((1024, 1024), 2), ((64, 64), 2), ((7, 192), 1)]:
        monkeypatch.setattr(construction, "_TILE", tile)
        use_threads(count)
        graph = build_graph(embeddings, edges, CPU, weights=weights)
        assert torch.get_num_threads() == count
        results.add(brute.bytes(graph))
    assert len(results) == 1
    brute.check(graph, embeddings, edges)


@pytest.mark.parametrize("name", ["integers", "duplicates", "identical", "hubs", "sorted_clusters"])
def test_crowded_blocks(data, brute, screening, monkeypatch, name):
    embeddings = data(name)
    crowded = []
    add = construction._add_crowded
    monkeypatch.setattr(
        construction, "_add_crowded", lambda *args: (crowded.append(args), add(*args))
    )
    monkeypatch.setattr(construction, "_TILE", (1024, 64))
    edges_only(monkeypatch)
    for quantile, weights in ((0.5, True), (0.98, False)):
        edges = brute.count(embeddings, quantile)
        graph = build_graph(embeddings, edges, CPU, weights=weights)
        brute.check(graph, embeddings, edges)
    assert crowded


def wrong_once(monkeypatch, wrong):
    """Let the first guess of the bracket be ``wrong``; returns the widenings asked for."""
    right, asked = construction.bracket, []

    def guess(sample, edges, pairs, widening):
        asked.append(widening)
        return wrong if len(asked) == 1 else right(sample, edges, pairs, widening)

    monkeypatch.setattr(construction, "bracket", guess)
    return asked


@pytest.mark.parametrize("name", ["gaussian", "uniform", "related", "hubs", "integers"])
@pytest.mark.parametrize(("steps", "weights"), [(1, True), (100, False), (1000, True)])
def test_too_high_a_lower_end(data, brute, screening, monkeypatch, name, weights, steps):
    embeddings = data(name)
    edges = brute.count(embeddings, 0.95)
    S = brute.similarities(embeddings)
    rows, columns = brute.largest(S, edges)
    above = np.unique(S[rows, columns])
    lower = float(above[min(steps, len(above) - 1)])
    asked = wrong_once(monkeypatch, Bracket(lower, np.inf))
    observer = Observer()
    runtime = Runtime(device="cpu", observer=observer)
    graph = build_graph(embeddings, edges, runtime, weights=weights)
    assert asked == [1, 4]
    (note,) = observer.notes
    assert note.startswith("retry: ")
    brute.check(graph, embeddings, edges)


@pytest.mark.parametrize("name", ["gaussian", "uniform", "related", "hubs", "integers"])
@pytest.mark.parametrize("steps", [1, 50, 3000])
def test_too_low_an_upper_end(data, brute, screening, monkeypatch, name, steps):
    """Pairs that were taken for certain, unscored, may be below the true threshold."""
    embeddings = data(name)
    edges = brute.count(embeddings, 0.95)
    S = brute.similarities(embeddings)
    below = np.unique(S[~np.eye(len(S), dtype=bool)])
    threshold = S[brute.largest(S, edges)].min()
    upper = float(below[max(0, np.searchsorted(below, threshold) - steps)])
    lower = float(below[max(0, np.searchsorted(below, upper) - 2000)])
    wrong_once(monkeypatch, Bracket(lower, upper))
    brute.check(build_graph(embeddings, edges, CPU, weights=False), embeddings, edges)


@pytest.mark.parametrize("quantile", [0.89, 0.92, 0.94])
def test_too_low_an_upper_end_in_some_rows_only(data, brute, screening, monkeypatch, quantile):
    """Where the errors are wide none is certain, so the certain ones never exceed the budget."""
    embeddings = data("uneven")
    edges = brute.count(embeddings, 0.95)
    S = brute.similarities(embeddings, "dot")
    lower, upper = np.quantile(S, [0.8, quantile])
    wrong_once(monkeypatch, Bracket(float(lower), float(upper)))
    graph = build_graph(embeddings, edges, CPU, weights=False, similarity="dot")
    brute.check(graph, embeddings, edges, "dot")


def test_no_retry_where_the_guess_is_right(data):
    observer = Observer()
    runtime = Runtime(device="cpu", observer=observer)
    build_graph(data("related"), 2050, runtime)
    assert observer.notes == []
    assert observer.done == observer.totals == {"prepare": 406, "graph": 203}


@pytest.mark.parametrize("rows", ["x", "xy"])
def test_rows_of_zeros_under_dot(brute, screening, rows):
    """Their similarities are all exactly zero, and so are those of the screen."""
    x, y = np.zeros((2, 20, 3), np.float32)
    if rows == "x":
        y += np.random.default_rng(0).standard_normal(y.shape).astype(np.float32)
    embeddings = Embeddings.from_arrays(x, y)
    graph = build_graph(embeddings, 190, CPU, similarity="dot")
    brute.check(graph, embeddings, 190, "dot")


@pytest.mark.parametrize("quantile", [0.2, 0.6])
def test_products_too_small_for_float32(brute, quantile):
    """They round to zero, from below to minus zero, which ties with zero."""
    x = np.random.default_rng(0).standard_normal((50, 1)).astype(np.float32) * np.float32(1e-30)
    embeddings = Embeddings.from_arrays(x)
    edges = brute.count(embeddings, quantile)
    graph = build_graph(embeddings, edges, CPU, similarity="dot")
    brute.check(graph, embeddings, edges, "dot")


@pytest.mark.parametrize("scale", [1e-12, 1e12, 1e15, 1e17])
def test_products_of_any_size_under_dot(data, brute, screening, scale):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((65, 6)) * scale + rng.choice([0, scale], 6)
    embeddings = Embeddings.from_arrays(x.astype(np.float32))
    for quantile in (0.01, 0.9):
        edges = brute.count(embeddings, quantile)
        graph = build_graph(embeddings, edges, CPU, similarity="dot")
        brute.check(graph, embeddings, edges, "dot")


def test_products_too_large_for_float32():
    x = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32) * np.float32(1e25)
    with pytest.raises(InputError, match="dot"):
        build_graph(Embeddings.from_arrays(x), 1225, CPU, similarity="dot")


def test_lengths_of_any_size_under_cosine(brute):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 6)) * 10.0 ** rng.uniform(-30, 30, (80, 1))
    embeddings = Embeddings.from_arrays(x.astype(np.float32))
    graph = build_graph(embeddings, 632, CPU)
    brute.check(graph, embeddings, 632)


def test_float16_extremes_under_dot(brute, screening):
    rng = np.random.default_rng(0)
    x = (rng.choice([-1, 1], (80, 6)) * rng.choice([6e-8, 1, 65504], (80, 6))).astype(np.float16)
    embeddings = Embeddings.from_arrays(x)
    graph = build_graph(embeddings, 1264, CPU, similarity="dot")
    brute.check(graph, embeddings, 1264, "dot")


def test_sharding_changes_nothing(data, brute, tmp_path):
    from batchplan.data import load_embeddings

    whole = data("gaussian")
    for side, matrix in (("a", whole.x), ("b", whole.y)):
        (tmp_path / side).mkdir()
        for part, (start, stop) in enumerate([(0, 50), (50, 51), (51, 203)]):
            np.save(tmp_path / side / f"{part}.npy", matrix.rows(start, stop))
    shards = load_embeddings([tmp_path / "a"], pair=[tmp_path / "b"])
    one, other = (build_graph(e, 4000, CPU) for e in (whole, shards))
    assert brute.bytes(one) == brute.bytes(other)


def test_refusals():
    zero = Embeddings.from_arrays(np.eye(4, 3, dtype=np.float32))
    with pytest.raises(InputError, match="zeros"):
        build_graph(zero, 6, CPU)
    build_graph(zero, 6, CPU, similarity="dot")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_cuda_equals_cpu(brute, embeddings, weights, similarity):
    edges = brute.count(embeddings, 0.95)
    on_cpu, on_gpu = (
        build_graph(embeddings, edges, Runtime(device), similarity=similarity, weights=weights)
        for device in ("cpu", "cuda")
    )
    assert torch.equal(on_cpu.indptr, on_gpu.indptr.cpu())
    assert torch.equal(on_cpu.indices, on_gpu.indices.cpu())
    assert on_cpu.threshold == on_gpu.threshold
    assert not weights or torch.equal(on_cpu.weights, on_gpu.weights.cpu())
