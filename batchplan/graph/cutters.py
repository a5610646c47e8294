"""Processes that cut graphs at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

import batchplan
from batchplan.errors import ResourceError
from batchplan.graph.metis import Graph, Int64Array, ask, receive

# The path of this process comes after the package and the standard library, or a file beside a
# script, such as random.py, would hide a module.
_START = """
import sys
sys.path = [sys.argv[1], *sys.path, *sys.argv[2:]]
from batchplan.graph.metis import serve
serve()
"""
_PACKAGES = os.fspath(Path(batchplan.__file__).parents[1])


class Cutters:
    """Processes that run `batchplan.graph.metis.cut`.

    A call takes an idle process, or starts another. Leaving the context kills them all. If this
    process ends, they end after their current cut.
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

    def cut(self, graph: Graph, parts: int, seed: int) -> Int64Array:
        """`batchplan.graph.metis.cut`, in another process.

        Raises:
            ResourceError: that process ended, perhaps for lack of memory.
        """
        process = self._take()
        requests: Any = process.stdin
        answers: Any = process.stdout
        try:
            ask(requests, graph, parts, seed)
            labels = receive(answers, len(graph[0]) - 1, np.int64)
        except (OSError, EOFError):
            raise ResourceError(
                f"partition: a process that cuts mega-batches ended ({_reason(process)}); free "
                "some memory, or plan with --mega-batches 1"
            ) from None
        with self._lock:
            self._idle.append(process)
        return labels

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if not self._open:
                raise ResourceError("partition: stopped while graphs were cut; plan again")
            # An interrupt at the terminal reaches only this process, which ends the others.
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, _PACKAGES, *sys.path],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
            self._all.append(process)
            return process


def _reason(process: subprocess.Popen[bytes]) -> str:
    stderr = process.communicate()[1].decode(errors="replace").split("\n")
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    return next((line for line in reversed(stderr) if line.strip()), f"status {process.returncode}")
