"""Cuthill-McKee ordering with a defined total order (GCBS algorithm 1; Cuthill and McKee 1969).

Vertices are ranked by (degree, index). A component starts at its vertex of lowest rank, and
components are ordered by their starts. Each vertex in turn appends its unplaced neighbours by rank.
That decides every tie.
"""

import numpy as np

from batchplan.graph import csr
from batchplan.kernels import njit
from batchplan.planners.papers.gcbs.similarity_graph import SimilarityGraph
from batchplan.typing import Int64Array


def cuthill_mckee(graph: SimilarityGraph, *, reverse: bool = True) -> Int64Array:
    """The (reverse) Cuthill-McKee permutation of the union of a graph and its transpose.

    Args:
        graph: a directed graph (GCBS section 5.2).
        reverse: reverse the order at the end, as GCBS does (appendix J).

    Returns:
        int64 (N,): the vertex at each position.
    """
    indptr, indices = csr.union_with_transpose(graph.indptr.numpy(), graph.indices.numpy())
    by_rank = np.argsort(np.diff(indptr), kind="stable")
    order: Int64Array = _sequential(indptr, indices, by_rank)
    return order[::-1] if reverse else order


@njit
def _sequential(indptr, indices, by_rank):  # type: ignore[no-untyped-def]
    n = by_rank.size
    rank = np.empty(n, np.int64)
    rank[by_rank] = np.arange(n)
    placed = np.zeros(n, np.bool_)
    order = np.empty(n, np.int64)  # ranks while a vertex waits, so that sorting needs no keys
    head = tail = 0
    for start in by_rank:
        if placed[start]:
            continue
        placed[start] = True
        order[tail] = rank[start]
        tail += 1
        while head < tail:
            vertex = by_rank[order[head]]
            first = tail
            for e in range(indptr[vertex], indptr[vertex + 1]):
                neighbor = indices[e]
                if not placed[neighbor]:
                    placed[neighbor] = True
                    order[tail] = rank[neighbor]
                    tail += 1
            order[first:tail].sort()
            order[head] = vertex
            head += 1
    return order
