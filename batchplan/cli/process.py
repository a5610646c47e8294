"""Runs a command: its signals, its exit status and its start."""

import gc
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable

import typer

from batchplan.cli.output import show_warning
from batchplan.cli.statuses import STATUSES, errors_reported, flush_output, is_interrupt
from batchplan.errors import ResourceError

# New objects before a run of the garbage collector. Libraries make hundreds of thousands while they
# load, and none of these are garbage.
_COLLECTED_AFTER = 100_000
_AGAIN = 1.0  # seconds after an interrupt until it is seen whether it was dropped
_on_abort: object = None  # kept, since C calls it

STARTED = time.perf_counter()  # when this process began to load its command


def run(work: Callable[[], object]) -> int:
    """Do the work of this process and return its exit status."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (it is closed)
    try:
        with errors_reported():
            _end_on_signals()
            _end_without_memory()
            gc.set_threshold(_COLLECTED_AFTER)
            warnings.showwarning = show_warning
            os.environ["MPLBACKEND"] = "agg"  # an unknown backend would fail on import
            work()
    except typer.Exit as ended:
        return ended.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        from traceback import print_exc

        print_exc()
        return 1
    finally:
        flush_output()
    return 0


def _end_without_memory() -> None:
    """Under a limit of memory (``ulimit -v``), end with the status of a `ResourceError` when a
    library ends the process: OpenBLAS and OpenMP call exit(1), C++ aborts."""
    global _on_abort
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import ctypes  # here, since it takes a millisecond

    status = STATUSES[ResourceError]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # it sends SIGINT if it cannot start more
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc._exit, ctypes.c_void_p(status), None)
    _on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: os._exit(status))
    libc.signal(signal.SIGABRT, _on_abort)


def _end_on_signals() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C: a job may be cancelled, or its terminal closed.

    A signal that is ignored, as by nohup, stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    """Raise KeyboardInterrupt; again each second until it ends this process, since libraries drop
    some while they load. Not while its cleaning up lasts."""

    def again(*_: object) -> None:
        if is_interrupt(sys.exception()):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            signal.raise_signal(number)  # not an exception, as signals may be deferred

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN)
    raise KeyboardInterrupt
