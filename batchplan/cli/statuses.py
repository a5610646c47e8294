"""Turns errors of a command into one line on standard error and an exit status."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from batchplan.cli.output import require_output, say, shortened
from batchplan.errors import BatchplanError, InputError, OutputError, ResourceError
from batchplan.extras import refusal
from batchplan.text import without_urls

_INTERRUPTED = 130
STATUSES = {InputError: 3, ResourceError: 4, OutputError: 5}
_MEND_MEMORY = "try fewer edges (--neighbors) or fewer rows, or free some memory"
# Messages of libraries that cannot allocate memory or the stack of a thread.
_NO_MEMORY = (
    "annot allocate memory",
    "can't allocate memory",
    "can't start new thread",
    "could not create a primitive",
    "failed to map segment",
    "failed to launch worker thread",
    "bad_alloc",
)


class PrintingCommand(TyperCommand):
    """A command that prints its result on standard output."""

    def invoke(self, ctx: Any) -> Any:
        require_output()
        return super().invoke(ctx)


class Commands(TyperGroup):
    """The group of commands; a failure becomes one line and an exit status."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with errors_reported():
            return super().make_context(*args, **extra)

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
        if sys.stdout is not None:  # at exit, Python would end with its own status
            sys.stdout.flush()
    except (typer.Exit, SystemExit):
        flush_output()
        raise
    except BrokenPipeError:
        flush_output()  # the reader stopped, as head does
        raise typer.Exit(0) from None
    except BaseException as error:
        ending = _ending(error)
        if ending is None:
            is_help = type(error).__name__ == "NoArgsIsHelpError"  # of click, or typer's own click
            if not is_help and hasattr(error, "format_message"):
                said = shortened(without_urls(error.format_message()))
                error.format_message = lambda: said
            raise
        flush_output()
        status, line = ending
        say(line)
        raise typer.Exit(status) from None


def flush_output() -> None:
    """Flush standard output, or discard what cannot be written.

    Otherwise Python would complain at exit and change the exit status.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ending(error: BaseException) -> tuple[int, str] | None:
    """Return the exit status and the message of an error; None for an error that passes."""
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED, "interrupted"
    if isinstance(error, BatchplanError):
        # Code that reads files may take a lack of memory for a damaged file.
        if not isinstance(error, InputError) or not _lacks_memory(error.__cause__):
            return status_of(error), f"error: {error}"
        return STATUSES[ResourceError], _out_of_memory(error.__cause__)
    if type(error).__name__ == "OutOfMemoryError":  # of torch, which must not be imported here
        message = f"the device ran out of memory; use --device cpu, or {_MEND_MEMORY}"
        return STATUSES[ResourceError], f"error: {message}"
    if _lacks_memory(error):
        return STATUSES[ResourceError], _out_of_memory(error)
    if any(isinstance(cause, KeyboardInterrupt) for cause in _chain(error)):  # wrapped by a library
        return _INTERRUPTED, "interrupted"
    if isinstance(error, ModuleNotFoundError) and (missing := refusal(error)):
        return STATUSES[ResourceError], f"error: {missing}"
    if isinstance(error, OSError):  # from printing; the package turns its own errors into the above
        message = f"{error.filename or 'the output'}: {error.strerror or error}"
        return STATUSES[OutputError], f"error: {message}"
    return None


def status_of(error: BatchplanError) -> int:
    """Return the exit status of a command that ends with an error."""
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 1)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lacks_memory(error: BaseException | None) -> bool:
    return any(
        isinstance(cause, MemoryError)
        or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        or any(words in str(cause) for words in _NO_MEMORY)
        for cause in _chain(error)
    )


def _out_of_memory(error: BaseException | None) -> str:
    return f"error: out of memory ({error or 'no details'}); {_MEND_MEMORY}"
