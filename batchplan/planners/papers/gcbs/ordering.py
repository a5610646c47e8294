"""Cuthill-McKee ordering with a defined total order (GCBS algorithm 1; Cuthill and McKee 1969).

Vertices are ranked by (degree, index). A component starts at its vertex of lowest rank, and
components are ordered by their starts. Each vertex in turn appends its unplaced neighbours by rank.
That decides every tie, so the sequential version in numba and the level-synchronous version in
torch give the same permutation.
"""

import numpy as np
import torch

from batchplan.graph import csr
from batchplan.kernels import njit
from batchplan.planners.papers.gcbs.similarity_graph import SimilarityGraph

_EXPANDED_AT_ONCE = 1 << 26  # neighbours of a level on the device at a time


def cuthill_mckee(graph: SimilarityGraph, *, reverse: bool = True) -> torch.Tensor:
    """The (reverse) Cuthill-McKee permutation of the union of a graph and its transpose.

    Args:
        graph: a directed graph (GCBS section 5.2); its device decides which version runs.
        reverse: reverse the order at the end, as GCBS does (appendix J).

    Returns:
        int64 (N,) on the graph's device: the vertex at each position.
    """
    indptr, indices = csr.union_with_transpose(graph.indptr, graph.indices)
    if graph.device.type == "cpu":
        by_rank = np.argsort(np.diff(indptr.numpy()), kind="stable")
        order = torch.from_numpy(_sequential(indptr.numpy(), indices.numpy(), by_rank))
    else:
        order = _level_synchronous(indptr, indices)
    return order.flip(0) if reverse else order


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


def _level_synchronous(indptr: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """All components advance together, one breadth-first level per step.

    A level is in the order (component, first parent's position, rank). As the previous level is in
    that order, a sort by (first parent's position, rank) is enough. A final stable sort by
    component gives the sequential order.
    """
    n = indptr.numel() - 1
    device = indptr.device
    by_rank = torch.argsort(indptr.diff(), stable=True)
    rank = torch.empty_like(by_rank)
    rank[by_rank] = torch.arange(n, device=device)
    component = _component_of(indptr, indices, rank)
    level = by_rank[component[by_rank] == rank[by_rank]]
    placed = torch.zeros(n, dtype=torch.bool, device=device)
    placed[level] = True
    first_parent = torch.full((n,), n, device=device)
    levels = []
    while level.numel():
        levels.append(level)
        next_level = []
        for parents in _split_by_degree(indptr, level):
            children, parent = _neighbors(indptr, indices, parents)
            new = ~placed[children]
            children, parent = children[new], parent[new]
            first_parent.scatter_reduce_(0, children, parent, "amin")
            first = first_parent[children] == parent
            children, parent = children[first], parent[first]
            children = children[torch.argsort(parent * n + rank[children])]
            placed[children] = True
            next_level.append(children)
        level = torch.cat(next_level)
    order = torch.cat(levels)
    return order[torch.argsort(component[order], stable=True)]


def _component_of(indptr: torch.Tensor, indices: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
    """int64 (N,): the lowest rank in the connected component of each vertex.

    The lowest labels spread along edges, to each vertex and to the vertex that its label names.
    Then each label is replaced by the label of the vertex that it names. This takes O(log N) rounds
    in practice (FastSV, Zhang, Azad and Buluc 2020).
    """
    n = rank.numel()
    vertices = torch.arange(n, device=rank.device)
    by_rank = torch.empty_like(rank)
    by_rank[rank] = vertices
    label = rank.clone()
    while True:
        lowest = label.clone()
        for rows in _split_by_degree(indptr, vertices):
            neighbors, position = _neighbors(indptr, indices, rows)
            lowest.scatter_reduce_(0, rows[position], label[neighbors], "amin")
        spread = lowest.clone()
        spread.scatter_reduce_(0, by_rank[label], lowest, "amin")
        while not torch.equal(jumped := spread[by_rank[spread]], spread):
            spread = jumped
        if torch.equal(spread, label):
            return label
        label = spread


def _split_by_degree(indptr: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
    """``rows`` split, in order, into pieces with few enough neighbours to fit into memory."""
    total = (indptr[rows + 1] - indptr[rows]).cumsum(0)
    if not rows.numel() or int(total[-1]) <= _EXPANDED_AT_ONCE:
        return [rows]
    piece = torch.div(total - 1, _EXPANDED_AT_ONCE, rounding_mode="floor").clamp_(min=0)
    return list(torch.split(rows, torch.unique_consecutive(piece, return_counts=True)[1].tolist()))


def _neighbors(
    indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The neighbours of ``rows``, int64, and the position in ``rows`` that each belongs to."""
    degrees = indptr[rows + 1] - indptr[rows]
    position = torch.repeat_interleave(torch.arange(rows.numel(), device=rows.device), degrees)
    before = degrees.cumsum(0) - degrees
    entry = torch.arange(position.numel(), device=rows.device) + (indptr[rows] - before)[position]
    return indices[entry].long(), position
