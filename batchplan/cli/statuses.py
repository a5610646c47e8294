"""Turns errors of a command into one line on standard error and an exit status."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from batchplan.cli.output import say
from batchplan.errors import BatchplanError, InputError, OptionError, OutputError, ResourceError
from batchplan.extras import refusal
from batchplan.text import check_urls

_INTERRUPTED = 130
STATUSES = {OptionError: 2, InputError: 3, ResourceError: 4, OutputError: 5}
_WITHOUT_MEMORY = "allocate memory", "can't start new thread"  # in what libraries say
_MEND_MEMORY = "try fewer rows or, for a graph, fewer edges (--neighbors), or free some memory"


class Commands(TyperGroup):
    """The group of commands; a failure becomes one line and an exit status."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        with errors_reported():
            check_urls(args)  # before a message can quote one, or a piece of it
            return super().make_context(info_name, args, *more, **extra)

    def invoke(self, ctx: Any) -> Any:
        with errors_reported():
            return super().invoke(ctx)


@contextmanager
def errors_reported() -> Iterator[None]:
    """Turn errors of the body into one line and a `typer.Exit`.

    Bugs pass and keep their traceback. Usage errors pass, and typer shows them.
    """
    try:
        yield
        sys.stdout.flush()  # at exit, Python would end with its own status
    except (typer.Exit, SystemExit):
        flush_output()
        raise
    except BrokenPipeError:
        flush_output()  # the reader stopped, as head does
        raise typer.Exit(0) from None
    except BaseException as error:
        ending = _ending(error)
        if ending is None:
            raise
        flush_output()
        status, line = ending
        say(line)
        raise typer.Exit(status) from None


def flush_output() -> None:
    """Flush standard output, or discard what cannot be written.

    Otherwise Python would complain at exit and change the exit status.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is a KeyboardInterrupt, which a library may have wrapped."""
    return error is not None and KeyboardInterrupt in (
        type(error), type(error.__cause__ or error.__context__),
    )  # fmt: skip


def _ending(error: BaseException) -> tuple[int, str] | None:
    """Return the exit status and the message of an error; None for an error that passes."""
    if is_interrupt(error):
        return _INTERRUPTED, "interrupted"
    if isinstance(error, BatchplanError):
        status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 1)
        return status, f"error: {error}"
    if (
        isinstance(error, MemoryError)
        or any(words in str(error) for words in _WITHOUT_MEMORY)
        or type(error).__name__ == "OutOfMemoryError"  # of torch, which must not be imported here
    ):
        message = f"out of memory ({str(error) or 'no details'}); {_MEND_MEMORY}"
        return STATUSES[ResourceError], f"error: {message}"
    if isinstance(error, ModuleNotFoundError) and (missing := refusal(error)):
        return STATUSES[ResourceError], f"error: {missing}"
    if package := _cannot_load(error):
        reason = str(error).partition("\n")[0] or type(error).__name__
        message = (
            f"{package}: cannot be loaded ({reason:.200}); if memory is limited (ulimit -v), allow "
            "4 GB, else install it again"
        )
        return STATUSES[ResourceError], f"error: {message}"
    if isinstance(error, OSError):  # from printing; the package turns its own errors into the above
        message = f"{error.filename or 'the output'}: {error.strerror or error}"
        return STATUSES[OutputError], f"error: {message}"
    return None


def _cannot_load(error: BaseException) -> str:
    """Return the package that raised an error while it was imported, "" for other errors.

    Without enough memory, libraries raise errors of many types.
    """
    trace, package = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "<module>":
            package = str(trace.tb_frame.f_globals["__name__"]).partition(".")[0]
        trace = trace.tb_next
    own = not isinstance(error, ImportError | OSError) and package == "batchplan"
    return "" if own or not isinstance(error, Exception) else package
