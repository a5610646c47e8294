"""The group of commands and its commands, which end with a status and one line if they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from batchplan.cli.failures import let_go_of_output, verdict
from batchplan.cli.options import require_output
from batchplan.cli.room import check_settings, load_within_limit
from batchplan.cli.text import say, shortened


class Command(TyperCommand):
    """A command, which loads nothing large before there is room for it."""

    def invoke(self, ctx: Any) -> Any:
        check_settings()
        load_within_limit()
        return super().invoke(ctx)


class PrintingCommand(Command):
    """A command whose result goes to standard output."""

    def invoke(self, ctx: Any) -> Any:
        require_output()
        return super().invoke(ctx)


class Commands(TyperGroup):
    """The command group, with the exit statuses of section "Exit status" in its help."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    """Turn what goes wrong in the body into one line and an exit status."""
    try:
        yield
        if sys.stdout is not None:  # rather than at exit, where Python has a status of its own
            sys.stdout.flush()
    except typer.Exit:
        let_go_of_output()
        raise
    except BrokenPipeError:
        let_go_of_output()  # its reader has seen enough
        raise typer.Exit(0) from None
    except BaseException as error:
        found = verdict(error)
        if found is None:
            if isinstance(message := getattr(error, "message", None), str):  # a usage error's
                error.message = shortened(message)  # type: ignore[attr-defined]
            raise
        let_go_of_output()
        status, line = found
        say(line)
        raise typer.Exit(status) from None
