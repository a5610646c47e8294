"""Defers signals while uninterruptible work is done."""

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
