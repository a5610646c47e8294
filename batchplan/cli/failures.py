"""What goes wrong becomes one line on standard error and an exit status."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from batchplan.errors import BatchplanError, OutputError, ResourceError
from batchplan.text import one_line

INTERRUPTED = 130
_MEND_MEMORY = "try fewer edges (--neighbors) or fewer rows, or free some memory"


class Commands(TyperGroup):
    """The command group, with the exit statuses of section "Exit status" in its help."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # rather than at exit, where Python has a status of its own
                sys.stdout.flush()
            return result
        except typer.Exit:
            _let_go_of_output()
            raise
        except BatchplanError as error:
            code, message = error.exit_code, f"error: {error}"
        except MemoryError as error:
            code = ResourceError.exit_code
            message = f"error: out of memory ({error or 'no details'}); {_MEND_MEMORY}"
        except BrokenPipeError:
            _let_go_of_output()  # its reader has seen enough
            raise typer.Exit(0) from None
        except OSError as error:  # the package turns its own into those above; print does not
            code = OutputError.exit_code
            message = f"error: {error.filename or 'the output'}: {error.strerror or error}"
        except KeyboardInterrupt:
            code, message = INTERRUPTED, "interrupted"
        except RuntimeError as error:
            # torch's own type cannot be named here: it would have to be imported. On the CPU it
            # has none at all.
            if type(error).__name__ == "OutOfMemoryError":
                message = f"error: the device ran out of memory; --device cpu, or {_MEND_MEMORY}"
            elif "can't allocate memory" in str(error):
                message = f"error: out of memory; {_MEND_MEMORY}"
            else:
                raise
            code = ResourceError.exit_code
        _let_go_of_output()
        typer.echo(one_line(message), err=True)
        raise typer.Exit(code)


def _let_go_of_output() -> None:
    """Write what is left of it, or discard what cannot be written: Python, when it flushes at exit,
    would complain and change the exit status."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
