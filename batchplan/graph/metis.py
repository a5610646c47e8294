"""METIS, in this process or in others.

METIS holds Python's lock and draws from the C library's generator, which all threads of a process
share. So graphs are cut at the same time by processes that run this module, which imports only what
METIS needs. Equal arguments give equal parts in any process.
"""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO

import numpy as np
import pymetis
from numpy.typing import DTypeLike, NDArray

Int64Array = NDArray[np.int64]
Graph = tuple[Int64Array, NDArray[np.int32] | Int64Array, NDArray[np.float32]]

_ROOM = 200  # thousandths by which METIS may make a part too large
_SEEDS = 2**31 - 1  # that METIS distinguishes
_MEAN_WEIGHT, _LARGEST_WEIGHT = 100, 10**6  # METIS takes integers above 0


def cut(graph: Graph, parts: int, seed: int) -> Int64Array:
    """The part of each of N rows, int64 (N,), of roughly equal sizes.

    Args:
        graph: ``indptr``, ``indices`` and ``weights`` of an `Affinity`.
        parts: how many, 2 at least.
        seed: equal seeds give equal parts.
    """
    indptr, indices, weights = graph
    mean = float(weights.mean()) if len(weights) else 1.0
    scale = _MEAN_WEIGHT / max(mean, 1e-30)
    integers = np.clip(np.rint(weights * scale), 1, _LARGEST_WEIGHT).astype(np.int64)
    adjacency = pymetis.CSRAdjacency(adj_starts=indptr, adjacent=indices.astype(np.int64))
    # METIS seeds the C library's generator, for which 0 and 1 are often the same.
    options = pymetis.Options(seed=seed % _SEEDS + 1, ufactor=_ROOM)
    _, labels = pymetis.part_graph(
        parts, adjacency, eweights=integers, recursive=False, options=options
    )
    return np.asarray(labels, np.int64)


def send(stream: BinaryIO, *arrays: NDArray[Any]) -> None:
    """Write the bytes of arrays."""
    for array in arrays:
        stream.write(np.ascontiguousarray(array).view(np.uint8).data)
    stream.flush()


def receive(stream: Any, count: int, dtype: DTypeLike) -> NDArray[Any]:
    """Read an array of ``count`` elements.

    Raises:
        EOFError: the stream ends before the array.
    """
    array = np.empty(count, dtype)
    if stream.readinto(array.view(np.uint8).data) < array.nbytes:
        raise EOFError
    return array


def ask(stream: BinaryIO, graph: Graph, parts: int, seed: int) -> None:
    """Send the arguments of `cut` to a process that runs `serve`."""
    indptr, indices, weights = graph
    header = [len(indptr), len(indices), indices.itemsize, parts, seed % _SEEDS]
    send(stream, np.array(header, np.int64), indptr, indices, weights)


def serve() -> None:
    """Cut the graphs that arrive on standard input, until it ends."""
    requests: Any = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # METIS prints its errors to standard output
    while requests.peek(1):
        ends, entries, itemsize, parts, seed = receive(requests, 5, np.int64).tolist()
        graph = (
            receive(requests, ends, np.int64),
            receive(requests, entries, f"i{itemsize}"),
            receive(requests, entries, np.float32),
        )
        send(answers, cut(graph, parts, seed))
