"""The nearest neighbours against the whole product, sorted."""

import numpy as np
import pytest

import batchplan
from batchplan.errors import InputError, ResourceError
from batchplan.graph import neighbor_search
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.guard.apart import Apart
from batchplan.guard.guard import Guard
from batchplan.runtime import Runtime


def rows_of(kind, n, d, rng):
    if kind == "ties":  # whole numbers: products are exact in any order of summation
        return rng.integers(-2, 3, (n, d)).astype(np.float32)
    return rng.standard_normal((n, d)).astype(kind)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("kind", "n", "k"), [("float16", 300, 7), ("ties", 50, 49)])
@pytest.mark.usefixtures("device_code")
def test_device_code_equals_brute_force(kind, paired, n, k):
    rng = np.random.default_rng(n)
    x = rows_of(kind, n, 16, rng)
    y = rows_of(kind, n, 16, rng) if paired else x
    embeddings = batchplan.load_embeddings(x, y if paired else None)
    similarity = "dot" if kind == "ties" else "cosine"
    found = nearest_neighbors(embeddings, k, Runtime(device="cpu"), similarity=similarity)
    a, b = x.astype(np.float64), y.astype(np.float64)
    if similarity == "cosine":
        a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    product = a @ b.T
    np.fill_diagonal(product, -np.inf)
    expected = np.argsort(-product, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(product, found.indices, axis=1)
    np.testing.assert_allclose(values, np.take_along_axis(product, expected, 1), atol=1e-6)
    np.testing.assert_allclose(found.similarities, values, atol=1e-6)
    assert all(len(set(row)) == k for row in found.indices.tolist())
    if kind == "ties":
        assert np.array_equal(found.indices, expected)


def test_threads_do_not_matter(use_threads, monkeypatch):
    import torch

    rows = np.random.default_rng(0).standard_normal((3000, 24)).astype(np.float32)
    embeddings = batchplan.load_embeddings(rows)
    found = []
    for threads in (1, 2, 3):
        use_threads(threads)
        found.append(nearest_neighbors(embeddings, 20, Runtime(device="cpu")))
        assert torch.get_num_threads() == threads
    for other in found[1:]:
        assert np.array_equal(found[0].indices, other.indices)
        assert np.array_equal(found[0].similarities, other.similarities)


@pytest.mark.parametrize("k", [0, -1, 20, 21])
def test_refuses_a_number_of_neighbours(k):
    embeddings = batchplan.load_embeddings(np.ones((20, 2), np.float32))
    with pytest.raises(InputError, match=rf"neighbors: got {k}, expected from 1 to 19"):
        nearest_neighbors(embeddings, k, Runtime(device="cpu"))


def test_refuses_what_cannot_fit():
    embeddings = batchplan.load_embeddings(np.ones((2000, 2), np.float32))
    with pytest.raises(ResourceError, match="1999 nearest neighbours of each of 2000 rows need"):
        nearest_neighbors(embeddings, 1999, Runtime(device="cpu", memory=1 << 20))


@pytest.mark.parametrize("way", ["tiles", "device_code"])
def test_rows_that_are_kept_apart(monkeypatch, request, way):
    if way == "device_code":
        request.getfixturevalue(way)
    monkeypatch.setattr(neighbor_search, "TILE", 64)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 8)).astype(np.float32)
    labels, groups = rng.integers(-1, 2, 150), rng.integers(-1, 4, 150)
    found = nearest_neighbors(
        batchplan.load_embeddings(x), 80, Runtime(device="cpu"), similarity="dot",
        guard=Guard(None, Apart.of((labels, groups), None)),
    )  # fmt: skip
    product = x.astype(np.float64) @ x.T.astype(np.float64)
    for codes in (labels, groups):
        product[(codes[:, None] == codes) & (codes >= 0)[:, None]] = -np.inf
    np.fill_diagonal(product, -np.inf)
    expected = np.argsort(-product, axis=1, kind="stable")[:, :80]
    expected[np.take_along_axis(product, expected, 1) == -np.inf] = -1
    assert (expected == -1).any()
    assert np.array_equal(found.indices, expected)
    assert ((found.similarities == -np.inf) == (expected == -1)).all()
