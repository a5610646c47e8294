"""On a real device: what the interpreter cannot run, such as products of bfloat16."""

import numpy as np
import pytest
import torch

from batchplan.data import Embeddings
from batchplan.graph import csr
from batchplan.graph.neighbors import nearest_neighbors
from batchplan.planners.papers.gcbs.construction import build_graph
from batchplan.runtime import Runtime

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module", params=["pairs", "single"])
def large(request):
    """Several strips of several tiles, with a common direction and a tail of its own."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((20_011, 100)).astype(np.float16) + 0.3 for _ in range(2))
    y = (x + y).astype(np.float16)
    y[500:600] = y[0]  # ties
    return Embeddings.from_arrays(x, y if request.param == "pairs" else None)


def near(one, other):
    """Equal but for the last bit, which hangs on the order of a float64 sum once in 10^7 times."""
    return np.allclose(one, other, rtol=2.0**-23, atol=0)


def test_graph(large):
    edges = 40 * large.num_rows
    on_cpu, on_gpu = (build_graph(large, edges, Runtime(device=name)) for name in ("cpu", "cuda"))
    assert torch.equal(on_cpu.indptr, on_gpu.indptr.cpu())
    assert torch.equal(on_cpu.indices, on_gpu.indices.cpu())
    assert near(on_cpu.weights, on_gpu.weights.cpu())
    again = build_graph(large, edges, Runtime(device="cuda"))
    assert torch.equal(again.indices, on_gpu.indices)
    assert torch.equal(again.weights, on_gpu.weights)
    united = [csr.union_with_transpose(one.indptr, one.indices) for one in (on_cpu, on_gpu)]
    assert all(torch.equal(one, other.cpu()) for one, other in zip(*united, strict=True))


def test_neighbors(large):
    on_cpu, on_gpu = (
        nearest_neighbors(large, 16, Runtime(device=name)) for name in ("cpu", "cuda")
    )
    assert near(on_cpu.similarities, on_gpu.similarities)
    # Equal ones that a last bit parts may change places.
    assert (on_cpu.indices != on_gpu.indices).mean() < 1e-4


def test_one_card_of_several(large):
    edges = 10 * large.num_rows
    graphs = [build_graph(large, edges, Runtime(device=name)) for name in ("cuda", "cuda:0")]
    assert torch.equal(graphs[0].indptr.cpu(), graphs[1].indptr.cpu())
    assert torch.equal(graphs[0].indices.cpu(), graphs[1].indices.cpu())
    assert torch.equal(graphs[0].weights.cpu(), graphs[1].weights.cpu())
