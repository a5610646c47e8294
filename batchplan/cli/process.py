"""The process of a command: its signals, its streams, and mapped files that are cut short."""

import gc
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

from batchplan.cli.output import show_warning
from batchplan.cli.statuses import errors_reported, flush_output
from batchplan.errors import InputError
from batchplan.files.inputs import INPUT_FORMATS
from batchplan.text import one_line, without_secrets

_MAPS = "/proc/self/maps"
_CLEAR = b"\r\x1b[2K\x1b[?25h"  # clears the line of a progress bar and shows the cursor
# New objects before the garbage collector looks at all: libraries make hundreds of thousands while
# they load, and none of these are garbage.
_COLLECTED_AFTER = 100_000

_started: list[float] = []  # of a process that is a command's own: when, on `time.perf_counter`


def run(work: Callable[[], object]) -> int:
    """Do the work of this process, and return its exit status."""
    _started.append(time.perf_counter() - _age())
    try:
        with errors_reported():
            _end_on_signals()
            _open_streams()
            gc.set_threshold(_COLLECTED_AFTER)
            warnings.showwarning = show_warning
            os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a bad one fails on import
            work()
    except typer.Exit as ended:
        return ended.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        from traceback import format_exception

        sys.stderr.write("".join(map(without_secrets, format_exception(error))))
        return 1
    finally:
        flush_output()
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
    """Clean up as after Ctrl-C when CI or a scheduler cancels the job, or its terminal closes. A
    signal that is ignored, for instance by nohup, stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _open_streams() -> None:
    """Open closed standard streams, because libraries write to their numbers, which a file could
    otherwise get; and ignore errors of writing to standard error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    raw = io.BufferedWriter(_Lossy(2, "wb", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


class _Lossy(io.FileIO):
    """A stream that drops what cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


@contextmanager
def cuts_reported() -> Iterator[None]:
    """While the body runs, reading past the new end of a mapped file ends the process with an error
    message and exit status 3, instead of SIGBUS.

    Such a read can neither continue nor raise: it happens in compiled code, in any thread. So use
    this only in a process of our own, around code that leaves no output half written. The handler
    is a C function, because Python runs its own handlers only between two Python instructions.
    """
    import ctypes

    try:
        install = ctypes.CDLL(None).signal
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_end)
    except (OSError, AttributeError, MemoryError):  # the system lacks or forbids it
        yield
        return
    install.argtypes, install.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = install(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        install(signal.SIGBUS, before)


def _end(_number: int) -> None:
    """Say which file was cut short, and end the process at once."""
    try:
        message = (
            f"error: {', '.join(_cut_short()) or 'a mapped file'}: was cut short while it was in "
            "use, so its rows cannot be read; run again when it is complete; to replace a file in "
            "use, write the new version elsewhere and rename it"
        )
        line = one_line(message).encode(errors="backslashreplace")
        os.write(2, (_CLEAR if os.isatty(2) else b"") + line + b"\n")
    finally:
        os._exit(InputError.exit_code)


def _cut_short() -> list[str]:
    """The inputs that are shorter than their memory maps; Linux only."""
    page = os.sysconf("SC_PAGE_SIZE")
    paths: dict[str, None] = {}
    with suppress(OSError), open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            span, _, offset, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if not (path and path[0].lower().endswith(tuple(INPUT_FORMATS))):
                continue
            start, stop = (int(end, 16) for end in span.split("-"))
            with suppress(OSError):
                if os.stat(path[0]).st_size <= int(offset, 16) + stop - start - page:
                    paths[path[0]] = None
    return list(paths)
