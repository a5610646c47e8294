"""What a command says besides tables: lines on standard error, documents on standard output.

Text reaches a terminal or a log through this module and `batchplan.cli.console` alone, and never as
an escape code or as a command to a CI runner.
"""

import json
import re
import sys
from typing import Any

import typer

from batchplan.errors import OutputError
from batchplan.text import clean, one_line

_LONGEST = 1000  # characters of a line on standard error


def say(text: str) -> None:
    """One line on standard error."""
    typer.echo(shortened(one_line(text)), err=True)


def shortened(text: str) -> str:
    """The text without its middle if it is long: an error begins with where and ends with how to
    mend it."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2 - 2
    return f"{text[:half]} … {text[-half:]}"


def show_warning(message: Warning | str, *_where: Any, **_how: Any) -> None:
    """A `warnings.showwarning` that takes one line: NumPy warns of odd files, and quotes them."""
    say(f"warning: {message}")


def require_output() -> None:
    """Require a standard output to print on.

    Raises:
        OutputError: it is closed.
    """
    if sys.stdout is None:
        raise OutputError("standard output: is closed, but the result goes there; open it")


def print_document(text: str) -> None:
    """Lines on standard output, in UTF-8 wherever that goes, as programs expect them."""
    typer.echo(clean(text).encode(), nl=False)


def print_json(document: dict[str, Any]) -> None:
    """A JSON document on standard output, in ASCII, without what a CI runner takes for commands."""
    text = json.dumps(document, indent=2, allow_nan=False)
    typer.echo(re.sub("#(?=#)", r"\\u0023", text))
