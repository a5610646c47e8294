"""METIS, as the processes of `batchplan.graph.cutters` run it.

METIS uses the random numbers of the C library, which all threads of a process share, and threads of
other libraries may use them too. So graphs are cut in processes that do nothing else, where equal
arguments give equal parts. They import little, not even NumPy, so that they start quickly.
"""

from __future__ import annotations

import os
import sys
from array import array
from typing import Any

import pymetis

from batchplan.files.signals import ended_with

_ROOM = 200  # thousandths by which METIS may make a part too large


def serve() -> None:
    """Cut the graphs that arrive on standard input, until it ends.

    A request has integers of 64 bits: the number of ends, of entries and of parts, and the seed;
    then the ends of rows, from 0 on, the column of each entry, and its weight. The answer is the
    part of each row.
    """
    requests: Any = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # METIS prints its errors to standard output
    while requests.peek(1):
        ends, entries, parts, seed = _receive(requests, 4)
        graph = _receive(requests, ends), _receive(requests, entries), _receive(requests, entries)
        # Watches the pipe of the answers, of which the last has been read. The pipe of the requests
        # would not work, see `ended_with`.
        with ended_with(answers.fileno()):
            labels = _cut(*graph, parts, seed)
        answers.write(labels)
        answers.flush()


def _cut(
    ends: array[int], columns: array[int], weights: array[int], parts: int, seed: int
) -> array[int]:
    """The part of each row, of roughly equal sizes."""
    adjacency = pymetis.CSRAdjacency(adj_starts=ends, adjacent=columns)
    options = pymetis.Options(seed=seed, ufactor=_ROOM)
    _, labels = pymetis.part_graph(
        parts, adjacency, eweights=weights, recursive=False, options=options
    )
    return array("q", labels)


def _receive(stream: Any, count: int) -> array[int]:
    numbers = array("q", [0]) * count
    if stream.readinto(numbers) < count * numbers.itemsize:
        raise EOFError("the process that asks has ended")
    return numbers
