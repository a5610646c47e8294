"""Defers signals while uninterruptible work is done, and ends work that no process waits for."""

import fcntl
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP until the body is done.

    Python runs signal handlers only in the main thread, so other threads need not defer them.
    Handlers are swapped, not masked: a masked signal would go to another thread of the process, and
    its handler would still run here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    before: dict[signal.Signals, Any] = {}
    try:
        for ending in _ENDING:
            if signal.getsignal(ending) not in (signal.SIG_IGN, None):  # None: not set by Python
                before[ending] = signal.signal(ending, remember)
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)
        for number in dict.fromkeys(caught):
            signal.raise_signal(number)


@contextmanager
def ended_with(pipe: int) -> Iterator[None]:
    """End this process by SIGIO when the other end of a pipe closes, because its owner has ended.

    Either end may be this process's. The other process must neither write nor read during the body,
    nor just before: it sends the signal after its bytes have arrived, and may be late. A thread
    that reads from the pipe would not do: it could not run while a library keeps the interpreter's
    lock. For the main thread, on Linux.
    """
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        states = select.poll()
        states.register(pipe, 0)
        if states.poll(0):  # closed before: POLLHUP or POLLERR, which need not be asked for
            signal.raise_signal(signal.SIGIO)
        yield
    finally:
        fcntl.fcntl(pipe, fcntl.F_SETFL, flags)
