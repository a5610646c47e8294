"""Neighbours of rows with mined negatives against the whole products."""

import numpy as np
import pytest

from batchplan.data import Embeddings
from batchplan.graph.affinity import affinity_graph
from batchplan.graph.neighbors import neighbors_both_ways
from batchplan.guard.apart import Apart
from batchplan.guard.guard import Guard
from batchplan.refinement import make_objective
from batchplan.runtime import Runtime


def tuples(kind, n=120, k=2, paired=True, seed=0):
    """Embeddings, and float64 (1 + k, N, N) products of their anchors and documents."""
    rng = np.random.default_rng(seed)
    x, y, *mined = (
        rng.integers(-2, 3, (n, 6)) if kind == "ties" else rng.standard_normal((n, 6))
        for _ in range(2 + k)
    )
    negatives = np.stack(mined, axis=1)
    negatives[rng.random((n, k)) < 0.3] = 0
    x, y, negatives = (part.astype(np.float32) for part in (x, y, negatives))
    data = Embeddings.from_arrays(x, y if paired else None, negatives=negatives)
    tiles = [x.astype(np.float64) @ (y if paired else x).T]
    for column in negatives.swapaxes(0, 1):
        missing = ~column.any(axis=1)
        tiles.append(np.where(missing, -np.inf, x.astype(np.float64) @ column.T))
    return data, np.stack(tiles)


@pytest.mark.parametrize("kind", ["ties", "noise"])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("k", [1, 9, 119])
def test_nearest_rows_are_those_of_the_largest_product(kind, paired, k):
    check(kind, paired, k)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.usefixtures("device_code")
def test_device_code(paired):
    check("ties", paired, 9)


def check(kind, paired, k):
    data, tiles = tuples(kind, paired=paired)
    largest = tiles.max(axis=0)
    both = neighbors_both_ways(data, k, Runtime(device="cpu"), similarity="dot")
    assert len(both) == 2
    for found, product in zip(both, (largest, largest.T), strict=True):
        np.fill_diagonal(product, -np.inf)
        expected = np.argsort(-product, axis=1, kind="stable")[:, :k]
        values = np.take_along_axis(product, found.indices, axis=1)
        np.testing.assert_allclose(values, np.take_along_axis(product, expected, 1), atol=1e-5)
        np.testing.assert_allclose(found.similarities, values, atol=1e-5)
        assert all(len(set(row)) == k for row in found.indices.tolist())
        if kind == "ties":
            assert np.array_equal(found.indices, expected)


@pytest.mark.parametrize("guarded", ["ceilings", "codes", "both"])
def test_a_guard_looks_at_all_documents(guarded):
    """Lists have no pair that the near document keeps apart, the graph none that any does."""
    data, tiles = tuples("ties")
    ceilings = np.full(120, 6.0, np.float32) if guarded != "codes" else None
    codes = (np.arange(120) // 5,) if guarded != "ceilings" else ()
    guard = Guard(ceilings, Apart.of(codes, None))
    apart = np.eye(120, dtype=bool)
    if codes:
        apart |= codes[0][:, None] == codes[0]
    tiles = np.where(np.isinf(tiles), tiles[0], tiles)  # in place of a missing one is the positive
    tiles = np.where(apart, -np.inf, tiles)
    broken = apart.copy()
    if ceilings is not None:
        high = tiles >= 6
        tiles[high | high.swapaxes(1, 2)] = -np.inf
        broken |= (high | high.swapaxes(1, 2)).any(axis=0)
    allowed = tiles.max(axis=0)
    found = neighbors_both_ways(data, 20, Runtime("cpu"), similarity="dot", guard=guard)
    for lists, product in zip(found, (allowed, allowed.T), strict=True):
        expected = np.argsort(-product, axis=1, kind="stable")[:, :20]
        there = np.take_along_axis(product, expected, 1) > -np.inf
        assert np.array_equal(lists.indices, np.where(there, expected, -1))
    objective = make_objective(data, Runtime("cpu"), similarity="dot", temperature=1.0, guard=guard)
    graph = affinity_graph(
        [lists.indices for lists in found], objective.x, objective.y, Runtime("cpu"),
        batch_size=8, temperature=1.0, negatives=objective.negatives, missing=objective.missing,
        ceilings=ceilings,
    )  # fmt: skip
    listed = np.zeros((120, 120), bool)
    for lists in found:
        rows, places = np.nonzero(lists.indices >= 0)
        listed[rows, lists.indices[rows, places]] = True
    listed |= listed.T
    edges = np.zeros((120, 120), bool)
    edges[np.repeat(np.arange(120), np.diff(graph.indptr)), graph.indices] = True
    assert np.array_equal(edges, listed & ~broken)
    assert (listed & broken).any() == (ceilings is not None)
