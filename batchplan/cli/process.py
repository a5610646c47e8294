"""The process of a command: its signals, its streams and its last resort."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from typing import Any

from batchplan.cli.failures import let_go_of_output, verdict
from batchplan.cli.text import say, show_warning


def run() -> int:
    """Run the command line, and return the status to end with."""
    try:
        _end_on_signals()
        _open_streams()
        warnings.showwarning = show_warning
        os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a bad one is an error on import
        from batchplan.cli.app import app

        app(prog_name="batchplan")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        found = verdict(error)
        if found is None:
            import traceback

            traceback.print_exception(error)
            return 1
        status, line = found
        say(line)
        return status
    finally:
        let_go_of_output()
    return 0


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
