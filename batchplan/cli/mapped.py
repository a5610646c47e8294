"""A mapped file that is cut short: exit status 3 and one line instead of death by SIGBUS."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from batchplan.errors import InputError
from batchplan.text import one_line

_MAPS = "/proc/self/maps"
_CLEAR = b"\r\x1b[2K\x1b[?25h"  # what a progress bar leaves: its line, and a hidden cursor


@contextmanager
def told_of_cuts() -> Iterator[None]:
    """While the body runs, to read what is no longer in a mapped file ends the process.

    Such a read cannot be taken back, nor can it raise: it is deep in compiled code, in any thread.
    So this is for a process that is the command's own, and for code that leaves no output half
    written while it reads rows. The handler is one of C's: Python calls its own between two
    instructions of Python, which never comes.
    """
    try:
        install = ctypes.CDLL(None).signal
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_end)
    except (OSError, AttributeError, MemoryError):  # a system that has or allows no such thing
        yield
        return
    install.argtypes, install.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = install(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        install(signal.SIGBUS, before)


def _end(_number: int) -> None:
    """Say which file was cut short, and end at once: nothing of this process can go on."""
    try:
        said = (
            f"error: {', '.join(_cut_short()) or 'a mapped file'}: was cut short while it was in "
            "use, so that its rows cannot be read; run again when it is complete: a new version "
            "that is written elsewhere and then renamed does no harm"
        )
        line = one_line(said).encode(errors="backslashreplace")
        os.write(2, (_CLEAR if os.isatty(2) else b"") + line + b"\n")
    finally:
        os._exit(InputError.exit_code)


def _cut_short() -> list[str]:
    """The NPY files that end before their maps do, where the system tells (Linux)."""
    page = os.sysconf("SC_PAGE_SIZE")
    found: dict[str, None] = {}
    with suppress(OSError), open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            span, _, offset, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if not (path and path[0].lower().endswith(".npy")):
                continue
            start, stop = (int(end, 16) for end in span.split("-"))
            with suppress(OSError):
                if os.stat(path[0]).st_size <= int(offset, 16) + stop - start - page:
                    found[path[0]] = None
    return list(found)
