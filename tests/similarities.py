"""Brute force: the whole product in float64, and the edges cut from it by sorting."""

import os
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.graph import csr, cuda
from batchplan.planners.papers.gcbs import construction, edge_store


def similarities(embeddings, similarity="cosine"):
    """float32 (N, N): float64 products of the float32 rows, normalised in float32 for cosine."""
    sides = []
    for matrix in (embeddings.x, embeddings.y):
        rows = matrix.rows(0, embeddings.num_rows).astype(np.float32)
        if similarity == "cosine":
            length = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
            rows = rows / length.astype(np.float32)
        sides.append(rows.astype(np.float64))
    return (sides[0] @ sides[1].T).astype(np.float32)


def largest(S, edges):
    """The rows and columns of the largest off-diagonal entries, ties by (row, column)."""
    order = np.argsort(-S, axis=None, kind="stable")
    order = order[order // len(S) != order % len(S)][:edges]
    return np.divmod(np.sort(order), len(S))


@dataclass
class Brute:
    """What the tests share."""

    similarities = staticmethod(similarities)
    largest = staticmethod(largest)

    @staticmethod
    def count(embeddings, quantile):
        """How many of the entries off the diagonal are above a quantile."""
        n = embeddings.num_rows
        return max(1, round((1 - quantile) * n * (n - 1)))

    @staticmethod
    def check(graph, embeddings, edges, similarity="cosine"):
        """Require the graph to be, entry by entry, the one that brute force finds."""
        n = embeddings.num_rows
        S = similarities(embeddings, similarity)
        rows, columns = largest(S, edges)
        assert graph.indptr.dtype == torch.int64
        assert graph.indices.dtype == torch.int32
        assert graph.num_edges == edges
        assert graph.num_rows == n
        got_rows = np.repeat(np.arange(n), graph.indptr.diff().numpy())
        assert np.array_equal(got_rows, rows)
        assert np.array_equal(graph.indices.numpy(), columns)
        assert graph.threshold == S[rows, columns].min()
        if graph.weights is not None:
            assert graph.weights.dtype == torch.float32
            assert np.array_equal(graph.weights.numpy(), S[rows, columns])

    @staticmethod
    def edges(graph):
        """The row, column and weight of each edge."""
        parts = csr.row_of_entry(graph.indptr), graph.indices, graph.weights
        return [part.numpy() for part in parts]

    @staticmethod
    def bytes(graph):
        weights = b"" if graph.weights is None else graph.weights.numpy().tobytes()
        arrays = graph.indptr.numpy().tobytes(), graph.indices.numpy().tobytes(), weights
        return (*arrays, graph.threshold)


@pytest.fixture(scope="session")
def brute():
    return Brute


def _pairs(x, y=None, dtype=np.float32):
    return Embeddings.from_arrays(x.astype(dtype), None if y is None else y.astype(dtype))


def _noise(n, d, seed):
    return np.random.default_rng(seed).standard_normal((n, d))


def _gaussian(n=203, d=24):
    return _pairs(_noise(n, d, 0), _noise(n, d, 1))


def _single(n=130, d=16):
    return _pairs(_noise(n, d, 0))


def _half(n=203, d=24):
    return _pairs(_noise(n, d, 0), _noise(n, d, 1), np.float16)


def _uniform(n=203, d=48):
    """Positive, so that all rows share a large common direction, as embeddings do."""
    rng = np.random.default_rng(2)
    return _pairs(rng.random((n, d)), rng.random((n, d)))


def _related(n=203, d=24):
    x = _noise(n, d, 3) + 2
    return _pairs(x, x + 0.3 * _noise(n, d, 4))


def _integers(n=150, d=3):
    """Few different similarities: nearly every threshold cuts through a mass of ties."""
    rng = np.random.default_rng(5)
    x, y = rng.integers(-1, 2, (2, n, d))
    x[:, 0], y[:, 0] = x[:, 0] * 2 + 1, y[:, 0] * 2 + 1  # no row of zeros
    return _pairs(x, y)


def _duplicates(n=160, d=8):
    x, y = _noise(n, d, 6), _noise(n, d, 7)
    x[80:], y[80:] = x[:80], y[:80]
    x[:20], y[:20] = x[0], y[0]
    return _pairs(x, y)


def _identical(n=70, d=5):
    return _pairs(np.tile(_noise(1, d, 8), (n, 1)))


def _hubs(n=203, d=24):
    """Two rows of X and one of Y that are similar to everything."""
    x, y = _noise(n, d, 9) + 1, _noise(n, d, 10) + 1
    x[17], x[200], y[5] = y.mean(0), 3 * y.mean(0), x.mean(0)
    return _pairs(x, y)


def _sorted_clusters(n=260, d=12):
    """The first cluster is the tightest: the first rows have most of the edges."""
    spread = np.repeat([0.01, 0.2, 0.5, 0.9], n // 4)[:, None]
    x = np.repeat(_noise(4, d, 11), n // 4, axis=0)
    return _pairs(x + spread * _noise(n, d, 12), x + spread * _noise(n, d, 13))


def _near_copies(n=100, d=16):
    """Similarities that differ by less than float32 can tell."""
    return _pairs(_noise(1, d, 14) + 1e-4 * _noise(n, d, 15))


def _line(n=90, d=1):
    return _pairs(_noise(n, d, 16), _noise(n, d, 17))


def _uneven(n=256, d=24):
    """The first rows of X are long, where Y has nothing: a wide error, but the same products."""
    x, y = _noise(n, d, 18), _noise(n, d, 19)
    y[:, d // 2 :] = 0
    x[: n // 4, d // 2 :] *= 1000
    x[n // 4 : n // 2, d // 2 :] = -x[: n // 4, d // 2 :]  # the mean stays small
    return _pairs(x, y)


MAKERS = {
    make.__name__[1:]: make
    for make in (
        _gaussian, _single, _half, _uniform, _related, _integers, _duplicates, _identical, _hubs,
        _sorted_clusters, _near_copies, _line, _uneven,
    )
}  # fmt: skip


@pytest.fixture(scope="session", params=MAKERS)
def embeddings(request):
    """Every data set that once could be thought to break something."""
    return MAKERS[request.param]()


@pytest.fixture(scope="session")
def data():
    """A function that makes a data set by its name above."""
    return lambda name, *size: MAKERS[name](*size)


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def screening(request, monkeypatch):
    """Both types to screen in, whatever this machine is fast at."""
    monkeypatch.setattr(construction, "screening_dtype", lambda _device: request.param)
    return request.param


@pytest.fixture
def kernels(monkeypatch):
    """The kernels for CUDA devices, for tensors on `device`."""
    kernels = pytest.importorskip("batchplan.graph.cuda.kernels", exc_type=ImportError)
    if "TRITON_INTERPRET" in os.environ:
        for name, size in {"_ROWS": 256, "_WORDS": 8, "_PAIRS": 2048, "_DEPTH": 32}.items():
            monkeypatch.setattr(kernels, name, size)  # a program takes milliseconds
    return kernels


@pytest.fixture
def device():
    """Where the kernels run: the CPU if Triton interprets them."""
    return torch.device("cpu" if "TRITON_INTERPRET" in os.environ else "cuda")


@pytest.fixture
def device_code(monkeypatch, kernels, device):
    """Run what CUDA devices run, on the CPU: Triton's interpreter and plain torch."""
    if device.type == "cuda":
        pytest.skip("set TRITON_INTERPRET=1")
    from batchplan.graph.cuda import nearest

    monkeypatch.setattr(cuda, "has_kernels", lambda _device: True)
    for module in (construction, nearest):
        monkeypatch.setattr(module, "screening_dtype", lambda _device: torch.float32)
    monkeypatch.setattr(edge_store, "_cut_numpy", edge_store._cut_torch)
