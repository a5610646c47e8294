"""What a graph tells about itself."""

import numpy as np
import pytest
import torch

from batchplan.graph import EdgeBudget, SimilarityGraph, build_graph
from batchplan.runtime import Runtime


@pytest.fixture(params=[True, False], ids=["weights", "pattern"])
def graph(request, data):
    runtime = Runtime(device="cpu")
    return build_graph(data("related"), EdgeBudget(0.97), runtime, weights=request.param)


def edges_of(graph):
    for i in range(graph.num_rows):
        for e in range(int(graph.indptr[i]), int(graph.indptr[i + 1])):
            yield i, int(graph.indices[e])


def test_sizes(graph):
    assert graph.num_rows == 203
    assert graph.num_edges == EdgeBudget(0.97).edges(203)
    assert graph.device == torch.device("cpu")
    count = np.zeros(203, int)
    for i, _ in edges_of(graph):
        count[i] += 1
    assert np.array_equal(graph.degrees(), count)


def test_to_scipy(graph, data, brute):
    matrix = graph.to_scipy()
    similarities = brute.similarities(data("related"))
    assert matrix.shape == (203, 203)
    assert matrix.has_canonical_format
    rows, columns = matrix.nonzero()
    assert list(zip(rows, columns, strict=True)) == list(edges_of(graph))
    held = np.ones(len(rows)) if graph.weights is None else similarities[rows, columns]
    assert np.array_equal(matrix.data, held)
    if graph.weights is not None:
        assert np.shares_memory(matrix.data, graph.weights.numpy())
        assert np.shares_memory(matrix.indices, graph.indices.numpy())


def test_symmetrized(graph):
    both = graph.symmetrized()
    assert both.symmetric
    assert both.symmetrized() is both
    assert both.threshold == graph.threshold
    assert not graph.symmetric
    pairs = set(edges_of(graph))
    assert list(edges_of(both)) == sorted(pairs | {(j, i) for i, j in pairs})
    # Once more over the arrays changes nothing.
    again = SimilarityGraph(both.indptr, both.indices, both.weights, False, 0.0).symmetrized()
    assert torch.equal(again.indptr, both.indptr)
    assert torch.equal(again.indices, both.indices)
    assert both.weights is None or torch.equal(again.weights, both.weights)
    dense = both.to_scipy().toarray()
    assert np.array_equal(dense, dense.T)
