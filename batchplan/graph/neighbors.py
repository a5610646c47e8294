"""The exact k most similar rows of every row, in one pass over tiles of X Y^T.

A tile of low precision serves both directions (`neighbor_search`; `cuda.nearest` on CUDA devices).
"""

import torch

from batchplan.data import Embeddings
from batchplan.errors import InputError
from batchplan.graph import cuda
from batchplan.graph.documents import Neighbors, united_lists
from batchplan.graph.neighbor_search import SearchData, search
from batchplan.graph.screen import load_keys, screen_width, screening_dtype
from batchplan.guard.guard import Guard
from batchplan.guard.rules import bytes_of_rows, rules_of
from batchplan.runtime import FEWER, Runtime, full_float32, silent

_FIXED = 64 << 20  # bytes: kernels, samples
_THREAD_BYTES = 96 << 20  # a tile, its candidates, and the candidates of the sample
_ROW_BYTES = 16  # floors, bars and limits


def nearest_neighbors(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    guard: Guard | None = None,
) -> Neighbors:
    """The exact k nearest y of every x, in N^2 d multiply-adds, or half as many if y is x.

    Args:
        embeddings: N pairs of d dimensions.
        k: neighbours per row, from 1 to N - 1.
        runtime: device, memory budget, progress.
        similarity: ``cosine`` (rows of unit length) or ``dot``.
        guard: excludes pairs that break it; with mined negatives, by the nearest document.

    Returns:
        Indices in int64. Similarities are float64 products of the float32 rows, rounded.

    Raises:
        InputError: k out of range, or a zero row under cosine.
        ResourceError: the neighbours do not fit into the memory budget, or there is no such device.
    """
    return neighbors_both_ways(
        embeddings, k, runtime, similarity=similarity, guard=guard, both=False
    )[0]


@full_float32()
def neighbors_both_ways(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    *,
    similarity: str = "cosine",
    guard: Guard | None = None,
    both: bool = True,
) -> list[Neighbors]:
    """The exact k nearest y of every x and, with ``both`` and if y is another matrix, the k nearest
    x of every y.

    The other arguments, the errors and the work are as of `nearest_neighbors`.
    """
    n = embeddings.num_rows
    if not 1 <= k < n:
        raise InputError(f"neighbors: got {k}, expected from 1 to {n - 1}, as there are {n} rows")
    embeddings.require_similarities(similarity)
    both = both and (embeddings.paired or bool(embeddings.negatives))
    search_on = _on_cpu
    if cuda.has_kernels(runtime.torch_devices()[0]):
        cuda.require_triton()
        # Imported here, since Triton comes with CUDA only.
        from batchplan.graph.cuda.nearest import neighbors_on

        search_on = neighbors_on
    found = [
        search_on(pairs, k, runtime, similarity == "cosine", guard, both and pairs.paired)
        for pairs in embeddings.by_document()
    ]
    # One matrix has one list.
    ways = [[lists[min(way, len(lists) - 1)] for lists in found] for way in range(1 + both)]
    return [united_lists(lists) for lists in ways]


def _on_cpu(
    embeddings: Embeddings,
    k: int,
    runtime: Runtime,
    normalize: bool,
    guard: Guard | None,
    both: bool,
) -> list[Neighbors]:
    n, d = embeddings.y.shape
    device, dtype = torch.device("cpu"), screening_dtype(torch.device("cpu"))
    rows = 4 * d + bytes_of_rows(guard, embeddings)
    rows += screen_width(d, dtype) * dtype.itemsize + _ROW_BYTES * (1 + both)
    need = n * (12 * k * (1 + both) + rows) + _FIXED + _THREAD_BYTES * torch.get_num_threads()
    runtime.require_memory(need, f"{k} nearest neighbours of each of {n} rows", FEWER)
    with runtime.stage("neighbors", n) as advance:
        keys = load_keys(embeddings, device, dtype, normalize, silent)
        rules = rules_of(guard, embeddings, keys.rows, normalize)
        problem = SearchData(embeddings.x, keys, normalize, rules)
        lists = [problem.lists(k) for _ in range(1 + both)]
        backward = None if embeddings.paired and not both else lists[-1]
        search(problem, lists[0], backward, advance)
    return [Neighbors(nearest.names, nearest.scores) for nearest in lists]
