"""The process of a command: its signals, its streams, and mapped files that are cut short."""

import io
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from batchplan.cli.imports import quicken_imports
from batchplan.cli.output import show_warning
from batchplan.cli.statuses import let_go_of_output, told
from batchplan.errors import InputError
from batchplan.text import one_line

_MAPS = "/proc/self/maps"
_CLEAR = b"\r\x1b[2K\x1b[?25h"  # what a progress bar leaves: its line, and a hidden cursor


_started: list[float] = []  # of a process that is a command's own: when, on `time.perf_counter`


def run(work: Callable[[], object]) -> int:
    """Do the work that this process is for, and return the status to end with."""
    _started.append(time.perf_counter() - _age())
    try:
        with told():
            _end_on_signals()
            _open_streams()
            quicken_imports()
            warnings.showwarning = show_warning
            os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a bad one fails on import
            work()
    except typer.Exit as ended:
        return ended.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
        return 1
    finally:
        let_go_of_output()
    return 0


def started() -> float:
    """When this process started, on the clock of `time.perf_counter`; in a process that is not a
    command's own, now."""
    return _started[0] if _started else time.perf_counter()


def _age() -> float:
    """Seconds that this process has run, to a hundredth, where the system tells (Linux); else 0."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])  # since the system started
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return 0.0
    return max(age, 0.0)


def _end_on_signals() -> None:
    """A job that is cancelled, in CI or by a scheduler, or whose terminal is closed, cleans up as
    after Ctrl-C. What is ignored, by nohup for instance, stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _open_streams() -> None:
    """No file that is opened takes the number of a standard stream that is closed, for libraries
    write to these; and what cannot be told on standard error changes nothing."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    raw = io.BufferedWriter(_Telling(2, "wb", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


class _Telling(io.FileIO):
    """A stream that loses what cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


@contextmanager
def told_of_cuts() -> Iterator[None]:
    """While the body runs, reading what is no longer in a mapped file ends the process with a line
    and exit status 3, instead of SIGBUS.

    Such a read cannot be taken back, nor can it raise: it is deep in compiled code, in any thread.
    So this is for a process that is the command's own, and for code that leaves no output half
    written while it reads rows. The handler is one of C's: Python calls its own between two
    instructions of Python, which never comes.
    """
    import ctypes

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
            "use, so its rows cannot be read; run again when it is complete; to replace a file in "
            "use, write the new version elsewhere and rename it"
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
