"""What goes wrong becomes one line on standard error and an exit status."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from batchplan.errors import BatchplanError, ResourceError

INTERRUPTED = 130


class Commands(TyperGroup):
    """The command group, with the exit statuses of section "Exit status" in its help."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BatchplanError as error:
            code, message = error.exit_code, f"error: {error}"
        except MemoryError as error:
            code = ResourceError.exit_code
            message = f"error: out of memory ({error or 'no details'}); try a lower --memory"
        except BrokenPipeError:
            # The reader of our output has seen enough. Python would complain once more when it
            # flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            code, message = INTERRUPTED, "interrupted; nothing was written"
        except RuntimeError as error:
            # torch's own type cannot be named here: it would have to be imported.
            if type(error).__name__ != "OutOfMemoryError":
                raise
            code = ResourceError.exit_code
            message = "error: the device ran out of memory; try fewer --neighbors or --device cpu"
        typer.echo(" ".join(message.split("\n")), err=True)
        raise typer.Exit(code)
