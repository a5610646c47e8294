"""Starts and ends other Python processes, and says why one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

# The path of this process comes after the package and the standard library. Otherwise a file next
# to a script, such as random.py, would hide a module.
_START = """
import sys
sys.path = [sys.argv[1], *sys.path, *sys.argv[2:]]
from {} import serve
serve()
"""
_PACKAGES = os.fspath(Path(__file__).parents[1])
_PATIENCE = 2  # seconds that a process gets to end


def start_python(module: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start ``module.serve()`` in a new Python process. A fork of this process could wait forever
    for a lock that a thread had, such as that of the random numbers.

    An interrupt at the terminal reaches only this process, which must end the other one.

    Args:
        module: a module of this package.
        options: those of Popen.

    Raises:
        OSError: it could not be started.
    """
    return subprocess.Popen(
        [sys.executable or "", "-P", "-S", "-c", _START.format(module), _PACKAGES, *sys.path],
        start_new_session=True,
        **options,
    )


def end_with(pipe: int, patience: float) -> None:
    """End this process when its parent closes the other end of a pipe: by SIGTERM, and at the
    latest after ``patience`` seconds."""

    def watch() -> None:
        while os.read(pipe, 1):
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
