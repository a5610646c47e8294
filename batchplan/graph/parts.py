"""Affinity -> parts of exactly the sizes asked for, with much weight inside.

Size-constrained label propagation (Meyerhenke, Sanders and Schulz, "Partitioning Complex Networks
via Size-Constrained Clustering", SEA 2014): in random order, each node joins the part to which it
has most weight, if there is room. Parts grow from single rows. Then rows of a part move together,
in clusters of half a part, a quarter and an eighth, and after each level alone. More weight stays
inside if parts may be a little too large until the end.
"""

from typing import NamedTuple

import numpy as np

from batchplan.graph.affinity import Affinity
from batchplan.graph.sizes import fit_sizes, settle
from batchplan.kernels import njit
from batchplan.runtime import Runtime
from batchplan.typing import Float32Array, Int32Array, Int64Array

_GROWTH, _CLUSTERING, _MOVES = 6, 3, 5  # rounds, at most
_FEW = 500  # a round that moves fewer than one node in so many is the last
_SHARES = 2, 4, 8  # a cluster that moves has at most this share of a part
_FEW_PARTS, _FEW_SHARE, _STARTS = 8, 8, 10  # see `_grown`
_PARTS = 10  # the generator stream
_POLISHES = 2  # times that parts of the exact sizes get a little room again


class _Graph(NamedTuple):
    """Nodes with edges between them; a node is a row, or a cluster of rows.

    Attributes:
        indptr, indices, weights: as of an `Affinity`.
        rows: int32 (nodes,), the number of rows of each node.
    """

    indptr: Int64Array
    indices: Int32Array
    weights: Float32Array
    rows: Int32Array


class _Limits(NamedTuple):
    """How many rows a part may have: no node joins a part that would have more, or leaves one that
    would have less."""

    most: int
    least: int


def parts_of(affinity: Affinity, sizes: Int64Array, runtime: Runtime) -> Int64Array:
    """A part for each row, int64 (N,), so that part p holds ``sizes[p]`` rows. O(E) a round, on one
    thread, in about 17 E bytes for E entries.

    Args:
        affinity: the graph of N rows.
        sizes: int64 (P,), falling, N in all.
        runtime: seed of the order of the rows in each round.
    """
    generator = runtime.generator(_PARTS)
    count, size = len(sizes), int(sizes[0])
    limits = _Limits(most=size + max(size * 3 // 20, 1), least=size * 7 // 10)
    indices = affinity.indices.astype(np.int32, copy=False)
    ones = np.ones(affinity.num_rows, np.int32)
    graph = _Graph(affinity.indptr, indices, affinity.weights, ones)
    parts = _grown(graph, sizes, generator)
    _improve(graph, parts, count, limits, _MOVES, generator)
    for share in _SHARES:
        if size // share < 2:
            break
        node_of_row, nodes = _contracted(graph, _clusters(graph, parts, size // share, generator))
        own = np.empty(len(nodes.rows), np.int32)
        own[node_of_row] = parts
        _improve(nodes, own, count, limits, _MOVES, generator)
        parts = own[node_of_row]
        _improve(graph, parts, count, limits, _MOVES, generator)
    exact = _exact(affinity, parts, sizes)
    little = max(size // 16, 1)
    for _ in range(_POLISHES):
        parts = exact.astype(np.int32)
        limits = _Limits(most=size + little, least=size - little)
        _improve(graph, parts, count, limits, _MOVES, generator)
        exact = _exact(affinity, parts, sizes)
    return exact


def _grown(graph: _Graph, sizes: Int64Array, generator: np.random.Generator) -> Int32Array:
    """Parts that grow from single rows, and then join others as a whole. Rows that are not in the
    largest of them join these.

    Few parts depend much on where they start. So these grow from clusters, which takes little time,
    and the best of several growths counts.
    """
    if len(sizes) > _FEW_PARTS:
        parts = _growth(graph, sizes, generator)
    else:
        clusters = _joined(graph, max(int(sizes[0]) // _FEW_SHARE, 1), _GROWTH, generator)
        node_of_row, nodes = _contracted(graph, clusters)
        grown = (_growth(nodes, sizes, generator) for _ in range(_STARTS))
        parts = max(grown, key=lambda found: _total_inside(nodes, found))[node_of_row]
    room = np.maximum(sizes - np.bincount(parts[parts >= 0], minlength=len(sizes)), 0)
    kinds, left = np.zeros(len(parts), np.int64), np.flatnonzero(parts < 0)
    settle(*graph[:3], parts, kinds, room[None], left)
    return parts.astype(np.int32)


def _growth(graph: _Graph, sizes: Int64Array, generator: np.random.Generator) -> Int64Array:
    """The part of each node, -1 if it is in none of the largest parts that grew."""
    node_of_node, nodes = np.arange(len(graph.rows), dtype=np.int32), graph
    for _ in range(2):
        joined, nodes = _contracted(nodes, _joined(nodes, int(sizes[0]), _GROWTH, generator))
        node_of_node = joined[node_of_node]
    largest = np.argsort(-nodes.rows, kind="stable")[: len(sizes)]
    parts = np.full(len(nodes.rows), -1, np.int64)
    parts[largest] = np.arange(len(largest))
    return parts[node_of_node]


def _joined(graph: _Graph, most: int, rounds: int, generator: np.random.Generator) -> Int32Array:
    """Clusters of at most so many rows, which grow from single nodes: int32 (nodes,), each named by
    one of its nodes."""
    clusters = np.arange(len(graph.rows), dtype=np.int32)
    _improve(graph, clusters, len(clusters), _Limits(most, least=0), rounds, generator)
    return clusters


def _total_inside(graph: _Graph, parts: Int64Array) -> float:
    """The weight inside parts. Nodes in no part have none."""
    own = np.repeat(parts, np.diff(graph.indptr))
    return float(graph.weights[(own >= 0) & (own == parts[graph.indices])].sum(dtype=np.float64))


def _clusters(
    graph: _Graph, parts: Int32Array, most: int, generator: np.random.Generator
) -> Int32Array:
    """`_joined` of rows, without the edges between parts."""
    kept = np.repeat(parts, np.diff(graph.indptr)) == parts[graph.indices]
    indptr = np.append(0, np.cumsum(kept))[graph.indptr]
    within = _Graph(indptr, graph.indices[kept], graph.weights[kept], graph.rows)
    return _joined(within, most, _CLUSTERING, generator)


def _improve(
    graph: _Graph,
    parts: Int32Array,
    count: int,
    limits: _Limits,
    rounds: int,
    generator: np.random.Generator,
) -> None:
    """Let nodes move, in place, for some rounds, each in another random order."""
    nodes = len(graph.rows)
    held = np.bincount(parts, weights=graph.rows, minlength=count).astype(np.int64)
    awake = np.ones(nodes, np.bool_)
    for _ in range(rounds):
        if _move(graph, parts, held, limits, generator.permutation(nodes), awake) * _FEW < nodes:
            break


def _contracted(graph: _Graph, clusters: Int32Array) -> tuple[Int32Array, _Graph]:
    """The new node of each node, int32 (nodes,), and the graph in which each cluster is a node."""
    node_of_node, *fields = _contract(graph, clusters)
    return node_of_node, _Graph(*fields)


@njit
def _move(graph, parts, held, limits, order, awake):  # type: ignore[no-untyped-def]
    """Each node in turn moves to the part to which it has most weight, of those with room.

    It stays unless the weight is more than to its own part, or the same and the part then has fewer
    rows. Of several such parts with the same weight, it takes the one with the fewest rows, then
    the one of its first neighbour. A node sleeps until a neighbour moves.

    Args:
        graph: a `_Graph`.
        parts: int32 (nodes,), changed in place.
        held: int64 (parts,), rows of each part, changed in place.
        limits: `_Limits`.
        order: int64 (nodes,).
        awake: bool (nodes,), changed in place.

    Returns:
        How many nodes moved.
    """
    indptr, indices, weights, rows = graph
    most, least = limits
    pull = np.empty(held.size, np.float32)
    asked = np.full(held.size, -1, np.int32)  # by which node `pull` is
    near = np.empty(held.size, np.int32)
    moved = 0
    for node in order:
        if not awake[node]:
            continue
        awake[node] = False
        own, size = parts[node], rows[node]
        asked[own], pull[own] = node, 0
        count = 0
        for e in range(indptr[node], indptr[node + 1]):
            part = parts[indices[e]]
            if asked[part] == node:
                pull[part] += weights[e]
            else:
                asked[part], pull[part] = node, weights[e]
                near[count] = part
                count += 1
        if held[own] - size < least:
            continue
        best, filled = own, held[own]
        for part in near[:count]:
            then = held[part] + size
            if part != own and then <= most and (pull[part], -then) > (pull[best], -filled):
                best, filled = part, then
        if best != own:
            parts[node] = best
            held[own] -= size
            held[best] += size
            moved += 1
            for e in range(indptr[node], indptr[node + 1]):
                awake[indices[e]] = True
    return moved


@njit
def _contract(graph, clusters):  # type: ignore[no-untyped-def]
    indptr, indices, weights, rows = graph
    n = rows.size
    number, starts = np.full(n, -1, np.int32), np.zeros(n + 1, np.int64)
    node_of, count = np.empty(n, np.int32), 0
    for node in range(n):
        cluster = clusters[node]
        if number[cluster] < 0:
            number[cluster] = count
            count += 1
        node_of[node] = number[cluster]
        starts[number[cluster]] += 1
    for new in range(1, count + 1):
        starts[new] += starts[new - 1]  # where the members end, until all are there
    members = np.empty(n, np.int32)
    for node in range(n - 1, -1, -1):
        starts[node_of[node]] -= 1
        members[starts[node_of[node]]] = node
    place = np.full(count, -1, np.int64)
    out_ptr, out_rows = np.zeros(count + 1, np.int64), np.zeros(count, np.int32)
    out, out_weights = np.empty(indices.size, np.int32), np.empty(indices.size, np.float32)
    stop = 0
    for new in range(count):
        start = stop
        for node in members[starts[new] : starts[new + 1]]:
            out_rows[new] += rows[node]
            for e in range(indptr[node], indptr[node + 1]):
                other = node_of[indices[e]]
                if other == new:
                    continue
                if place[other] < start:
                    place[other] = stop
                    out[stop], out_weights[stop] = other, 0
                    stop += 1
                out_weights[place[other]] += weights[e]
        out_ptr[new + 1] = stop
    return node_of, out_ptr, out[:stop].copy(), out_weights[:stop].copy(), out_rows


def _exact(affinity: Affinity, parts: Int32Array, sizes: Int64Array) -> Int64Array:
    """Parts of exactly these sizes. The parts that hold most get the largest."""
    count = len(sizes)
    held = np.bincount(parts, minlength=count)
    order = np.argsort(-held, kind="stable")
    renumbered = np.empty(count, np.int64)
    renumbered[order] = np.arange(count)
    kinds = np.zeros(affinity.num_rows, np.int64)
    return fit_sizes(affinity, renumbered[parts], kinds, sizes[None, :])
