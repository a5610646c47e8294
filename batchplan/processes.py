"""Starts and ends other Python processes, and says why one ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from threading import Thread
from typing import Any

# The path of this process comes after the package and the standard library. Otherwise a file next
# to a script, such as random.py, would hide a module.
_START = """
import sys
parent, pipe, package, *paths = sys.argv[1:]
sys.path = [package, *sys.path, *paths]
from batchplan.processes import end_with
end_with(int(parent), int(pipe), {})
from {} import serve
serve()
"""
_PACKAGES = os.fspath(Path(__file__).parents[1])
_LOOKS = 0.05  # seconds between two looks at the parent
_PATIENCE = 2  # seconds that a process gets to end


def start_python(
    module: str, pipe: int, patience: float, pass_fds: Sequence[int] = (), **options: Any
) -> subprocess.Popen[bytes]:
    """Start ``module.serve()`` in a new Python process. A fork of this process could wait forever
    for a lock that a thread had, such as the lock of the random numbers.

    An interrupt at the terminal reaches only this process. The other one ends with it, also while
    it loads modules.

    Args:
        module: a module of this package.
        pipe, patience: see `end_with`.
        pass_fds, options: as for Popen.

    Raises:
        OSError: it could not be started.
    """
    script = _START.format(patience, module)
    words = ["-P", "-S", "-c", script, str(os.getpid()), str(pipe), _PACKAGES, *sys.path]
    return subprocess.Popen(
        [sys.executable or "", *words],
        start_new_session=True,
        pass_fds=[pipe, *pass_fds],
        **options,
    )


def end_with(parent: int, pipe: int, patience: float) -> None:
    """End this process when its parent ends or closes the other end of a pipe: by SIGTERM, and at
    the latest after ``patience`` seconds.

    Args:
        parent: the id of its process. Forks of it, such as workers of loaders, may keep the pipe
            open for longer.
        pipe: the descriptor of the end to read from, to which nothing is written.
        patience: seconds.
    """

    def watch() -> None:
        while os.getppid() == parent and not select([pipe], [], [], _LOOKS)[0]:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os._exit(128 + signal.SIGTERM)

    Thread(target=watch, daemon=True).start()


def end_process(process: subprocess.Popen[Any]) -> None:
    """Wait for a process to end; then terminate it, so that it can clean up; then kill it."""
    for number in (0, signal.SIGTERM):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_PATIENCE)
    process.kill()
    process.wait()


def reason(status: int, messages: str) -> str:
    """Return the reason why a process ended, in one line.

    Args:
        status: its exit status, or minus the number of the signal that killed it.
        messages: what it wrote to stderr.
    """
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}" + ", out of memory perhaps" * (name == "SIGKILL")
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else f"exit status {status}, no message"
