"""Work in copies of a small process: to copy one that has loaded torch takes ten times as long."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SERVE = "from tests.faults.copies import serve; serve()"


class Copies:
    """A process that runs what it is sent in a copy of itself each. Use it as a context."""

    def __enter__(self) -> Copies:
        self._server: Any = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=60)

    def run(self, work: Callable[[], object]) -> int:
        """The exit status of a copy: 0, 1 if the work raised something, or what it exited with.

        Args:
            work: can be pickled, and its modules do not load torch.
        """
        pickle.dump((os.getcwd(), work), self._server.stdin)
        self._server.stdin.flush()
        return int(pickle.load(self._server.stdout))


def serve() -> None:
    """Run what arrives on standard input, until it ends."""
    while sys.stdin.buffer.peek(1):
        folder, work = pickle.load(sys.stdin.buffer)
        os.chdir(folder)
        pickle.dump(in_a_copy(work), sys.stdout.buffer)
        sys.stdout.buffer.flush()


def in_a_copy(work: Callable[[], object]) -> int:
    """The exit status of a copy of this process, as of `Copies.run`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
