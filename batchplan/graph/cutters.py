"""Processes that cut graphs with METIS, several at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import ResourceError
from batchplan.processes import reason, start_python
from batchplan.typing import Int64Array

Graph = tuple[Int64Array, NDArray[np.int32] | Int64Array, NDArray[np.float32]]

_SEEDS = 2**31 - 1  # that METIS distinguishes
_MEAN_WEIGHT, _LARGEST_WEIGHT = 100, 10**6  # METIS takes integers above 0
_BLOCK = 1 << 17  # entries that are converted and sent at once


class Cutters:
    """Processes that run METIS.

    A call takes an idle process or starts another. Leaving the context kills all of them. They also
    end when this process ends, even if it is killed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._all: list[subprocess.Popen[bytes]] = []
        self._idle: list[subprocess.Popen[bytes]] = []
        self._open = True

    def __enter__(self) -> Cutters:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open = False
            for process in self._all:
                process.kill()  # there is nothing to clean up
                process.wait()
            for process in self._idle:  # threads use, and will close, the pipes of the others
                process.communicate()

    def cut(self, graph: Graph, parts: int, seed: int) -> Int64Array:
        """Cut a graph into parts of roughly equal sizes; returns the part of each row, int64 (N,).

        Args:
            graph: ``indptr``, ``indices`` and ``weights`` of an `Affinity`.
            parts: the number of parts, at least 2.
            seed: equal seeds give equal parts, in any process.

        Raises:
            ResourceError: the process could not start, or ended, perhaps as memory was short.
        """
        process = self._take()
        requests: Any = process.stdin
        answers: Any = process.stdout
        labels = np.empty(len(graph[0]) - 1, np.int64)
        try:
            for numbers in _request(graph, parts, seed):
                requests.write(numbers.data)
            requests.flush()
            if answers.readinto(labels.data) < labels.nbytes:
                raise EOFError
        except (OSError, EOFError):
            raise ResourceError(
                f"partition: a process that cuts mega-batches ended ({_reason(process)}); free "
                "some memory, or make mega-batches smaller (--mega-batch-rows)"
            ) from None
        with self._lock:
            if self._open:
                self._idle.append(process)
            else:
                process.communicate()
        return labels

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if not self._open:
                raise ResourceError("partition: stopped while graphs were cut; plan again")
            process = _start()
            self._all.append(process)
            return process


def _start() -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:
        return start_python("batchplan.graph.metis", **pipes)
    except OSError as error:
        raise ResourceError(
            f"partition: no process could be started to cut mega-batches ({error.strerror}); free "
            f"some memory; sys.executable is {sys.executable!r}, expected the path of a "
            "Python with batchplan's libraries"
        ) from error


def _request(graph: Graph, parts: int, seed: int) -> Iterator[Int64Array]:
    """The numbers that `batchplan.graph.metis.serve` reads, in blocks."""
    indptr, indices, weights = graph
    mean = float(weights.mean()) if len(weights) else 1.0
    scale = _MEAN_WEIGHT / max(mean, 1e-30)
    # METIS seeds the C library's generator, for which 0 and 1 are often the same.
    yield np.array([len(indptr), len(indices), parts, seed % _SEEDS + 1])
    yield np.ascontiguousarray(indptr)
    starts = range(0, len(indices), _BLOCK)
    for start in starts:
        yield indices[start : start + _BLOCK].astype(np.int64)
    for start in starts:
        scaled = np.rint(weights[start : start + _BLOCK] * scale)
        yield np.clip(scaled, 1, _LARGEST_WEIGHT).astype(np.int64)


def _reason(process: subprocess.Popen[bytes]) -> str:
    messages = process.communicate()[1].decode(errors="replace")
    return reason(process.returncode, messages)
