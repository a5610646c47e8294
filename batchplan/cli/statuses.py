"""What goes wrong in a command becomes one line on standard error and an exit status."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from batchplan.cli.limits import check_limits
from batchplan.cli.output import require_output, say, shortened
from batchplan.errors import BatchplanError, InputError, OutputError, ResourceError
from batchplan.runtime import address_space, format_bytes

_INTERRUPTED = 130
_MEND_MEMORY = "try fewer edges (--neighbors) or fewer rows, or free some memory"
# What libraries say when they cannot have memory, or the stack of a thread.
_NO_MEMORY = (
    "annot allocate memory",
    "can't allocate memory",
    "can't start new thread",
    "could not create a primitive",
    "failed to map segment",
    "failed to launch worker thread",
    "bad_alloc",
)


class Command(TyperCommand):
    """A command, which loads nothing large before there is room for it."""

    def invoke(self, ctx: Any) -> Any:
        check_limits()
        return super().invoke(ctx)


class PrintingCommand(Command):
    """A command whose result goes to standard output."""

    def invoke(self, ctx: Any) -> Any:
        require_output()
        return super().invoke(ctx)


class Commands(TyperGroup):
    """The group of commands, which end with a status and one line if they fail."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with told():
            return super().invoke(ctx)


@contextmanager
def told() -> Iterator[None]:
    """Turn what goes wrong in the body into one line and a `typer.Exit`; a mistake of ours, which
    deserves its traceback, and a usage error, which typer shows, pass."""
    try:
        yield
        if sys.stdout is not None:  # rather than at exit, where Python has a status of its own
            sys.stdout.flush()
    except (typer.Exit, SystemExit):
        let_go_of_output()
        raise
    except BrokenPipeError:
        let_go_of_output()  # its reader has seen enough
        raise typer.Exit(0) from None
    except BaseException as error:
        found = _verdict(error)
        if found is None:
            if isinstance(message := getattr(error, "message", None), str):  # a usage error's
                error.message = shortened(message)  # type: ignore[attr-defined]
            raise
        let_go_of_output()
        status, line = found
        say(line)
        raise typer.Exit(status) from None


def let_go_of_output() -> None:
    """Write what is left of it, or discard what cannot be written: Python, when it flushes at exit,
    would complain and change the exit status."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _verdict(error: BaseException) -> tuple[int, str] | None:
    """The exit status of what went wrong, and the line that tells it; None for what may pass."""
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED, "interrupted"
    if isinstance(error, BatchplanError):
        # Who reads damaged files may take a lack of memory for damage.
        if not isinstance(error, InputError) or not _lacks_memory(error.__cause__):
            return error.exit_code, f"error: {error}"
        return ResourceError.exit_code, _out_of_memory(error.__cause__)
    if type(error).__name__ == "OutOfMemoryError":  # torch's: naming it would import torch
        message = f"the device ran out of memory; use --device cpu, or {_MEND_MEMORY}"
        return ResourceError.exit_code, f"error: {message}"
    if _lacks_memory(error):
        return ResourceError.exit_code, _out_of_memory(error)
    if any(isinstance(one, KeyboardInterrupt) for one in _chain(error)):  # wrapped by a library
        return _INTERRUPTED, "interrupted"
    settings = [f"{name}={it}" for name, it in os.environ.items() if name.startswith("NUMBA_")]
    if settings and _raised_in_numba(error):
        message = f"numba: got {', '.join(settings)} in the environment, and fails ({error})"
        return InputError.exit_code, f"error: {message}; unset what is wrong there"
    if isinstance(error, OSError):  # the package turns its own into those above; print does not
        message = f"{error.filename or 'the output'}: {error.strerror or error}"
        return OutputError.exit_code, f"error: {message}"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lacks_memory(error: BaseException | None) -> bool:
    return any(
        isinstance(one, MemoryError)
        or (isinstance(one, OSError) and one.errno == errno.ENOMEM)
        or any(words in str(one) for words in _NO_MEMORY)
        for one in _chain(error)
    )


def _out_of_memory(error: BaseException | None) -> str:
    limited = address_space()
    within = f" of {format_bytes(limited.limit)} that ulimit -v allows" if limited else ""
    return f"error: out of memory{within} ({error or 'no details'}); {_MEND_MEMORY}"


def _raised_in_numba(error: BaseException) -> bool:
    from traceback import walk_tb

    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("numba.")
