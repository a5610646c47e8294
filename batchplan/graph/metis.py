"""METIS, as the processes of `batchplan.graph.cutters` run it.

It draws from the C library's generator, which all threads of a process share, and any library may
have threads that draw too. So graphs are cut in processes that do nothing else. Equal arguments
give equal parts in any of them. They import little, not even NumPy, so that they start quickly.
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

    All are integers of 64 bits: how many ends there are, how many entries, the parts and the seed;
    then the ends of rows, from 0 on, the column of each entry, and its weight. The answer is the
    part of each row.
    """
    requests: Any = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # METIS prints its errors to standard output
    while requests.peek(1):
        ends, entries, parts, seed = _receive(requests, 4)
        graph = _receive(requests, ends), _receive(requests, entries), _receive(requests, entries)
        # That of the requests would not do, see `ended_with`; the last answer has been read.
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
