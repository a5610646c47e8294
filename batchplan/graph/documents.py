"""Neighbours and graphs of rows with several documents: a row is as near as its nearest document.

Each document of the rows, the positives and then each mined negative, is searched as pairs are.
The k best rows by the largest product are among the k best rows by some document, so the results
need only be united: (1 + k) times the work of pairs, and 2 results in memory at a time. A guard
sees one document in each search, so that a pair may be listed which another document keeps apart.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from batchplan.graph import csr
from batchplan.graph.candidates import Candidates
from batchplan.graph.scan import Block
from batchplan.graph.similarity_graph import SimilarityGraph
from batchplan.kernels import njit
from batchplan.threads import in_blocks

Lists = tuple[NDArray[np.int64], NDArray[np.float32]]

_ROWS = 1024  # whose lists a thread unites at a time


def united_lists(by_document: Iterable[Lists], count: int | None = None) -> Lists:
    """The k nearest rows of every row by their most similar document.

    Args:
        by_document: for each document, int64 and float32 (N, k): the nearest rows, best first, and
            their similarities; -1 and -inf at the end of shorter lists.
        count: how many rows may be in lists; N by default.

    Returns:
        The same of all documents; ties go to the lower row.
    """
    lists = iter(by_document)
    best = next(lists)
    for other in lists:
        out = np.empty_like(best[0]), np.empty_like(best[1])
        work = partial(_unite, best, other, out, count or len(best[0]))
        in_blocks(work, len(out[0]), _ROWS, _unheard)
        best = out
    return best


def united_graph(by_document: Iterable[SimilarityGraph], edges: int) -> SimilarityGraph:
    """The ``edges`` pairs with the largest product of the anchor with any document of the other
    row; ties go to the lower (i, j).

    Args:
        by_document: for each document, the directed graph of as many edges, with weights.
        edges: E.
    """
    graphs = iter(by_document)
    best = next(graphs)
    for graph in graphs:
        united = _maximum(best).maximum(_maximum(graph))
        store = Candidates(best.num_rows, united.nnz, best.indices.dtype, torch.device("cpu"))
        counts = torch.from_numpy(np.diff(united.indptr).astype(np.int64))
        columns = torch.from_numpy(united.indices).to(best.indices.dtype)
        scores = torch.from_numpy(csr.from_keys(united.data))
        store.add(Block(0, counts, columns, scores, 0))
        threshold = store.cut(edges)
        indptr, indices, weights = store.finish(True)
        best = SimilarityGraph(
            indptr.to(best.device), indices.to(best.device),
            None if weights is None else weights.to(best.device),
            symmetric=False, threshold=threshold,
        )  # fmt: skip
    return best


def _maximum(graph: SimilarityGraph) -> csr_array:
    """The graph as a matrix whose maximum with another is that of the weights."""
    assert graph.weights is not None
    indptr, indices, weights = (
        part.cpu().numpy() for part in (graph.indptr, graph.indices, graph.weights)
    )
    return csr.square(indptr, indices, csr.as_keys(weights))


def _unheard(_rows: int) -> None:
    """Uniting takes no time beside the searches, and reports no progress."""


@njit
def _unite(first, second, out, count, start, stop):  # type: ignore[no-untyped-def]
    """Merge two lists of each row, best first; of a row in both the better place counts."""
    k = first[0].shape[1]
    holder = np.full(count, -1, np.int64)  # the last row whose list has it
    for i in range(start, stop):
        a = b = 0
        for place in range(k):
            a = _next(first[0][i], a, holder, i)
            b = _next(second[0][i], b, holder, i)
            if a == k and b == k:
                out[0][i, place], out[1][i, place] = -1, -np.inf
                continue
            ahead = b == k
            if a < k and b < k:
                mine, others = first[1][i, a], second[1][i, b]
                ahead = mine > others or (mine == others and first[0][i, a] < second[0][i, b])
            if ahead:
                out[0][i, place], out[1][i, place] = first[0][i, a], first[1][i, a]
            else:
                out[0][i, place], out[1][i, place] = second[0][i, b], second[1][i, b]
            holder[out[0][i, place]] = i


@njit
def _next(names, place, holder, row):  # type: ignore[no-untyped-def]
    """The next place of a list that the merged list of the row lacks; k at the end."""
    while place < names.size and names[place] >= 0 and holder[names[place]] == row:
        place += 1
    return names.size if place < names.size and names[place] < 0 else place
