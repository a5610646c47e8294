"""Prints lines on standard error, and documents on standard output.

All text reaches a terminal or log through this module or `batchplan.cli.console`. Both remove
escape codes, commands to CI runners and keys of URLs.
"""

import json
import re
import sys
from typing import Any

import typer

from batchplan.errors import OutputError
from batchplan.text import clean, one_line, public, without_secrets

_LONGEST = 1000  # characters of a line on standard error


def say(text: str) -> None:
    """Print one line on standard error."""
    typer.echo(shortened(one_line(without_secrets(text))), err=True)


def shortened(text: str) -> str:
    """Cut the middle out of a long text. Errors begin with a place, and end with a remedy."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2 - 2
    return f"{text[:half]} … {text[-half:]}"


def show_warning(message: Warning | str, *_args: Any, **_kwargs: Any) -> None:
    """A `warnings.showwarning` that prints one line: NumPy's warnings quote damaged files."""
    say(f"warning: {message}")


def require_output() -> None:
    """Require a standard output to print on.

    Raises:
        OutputError: it is closed.
    """
    if sys.stdout is None:
        raise OutputError("standard output: is closed, but the result goes there; open it")


def print_document(text: str) -> None:
    """Print lines on standard output, always in UTF-8, as programs expect."""
    lines = map(without_secrets, text.split("\n"))
    typer.echo(clean("\n".join(lines)).encode(), nl=False)


def print_json(document: dict[str, Any]) -> None:
    """Print a JSON document on standard output, in ASCII.

    It has no keys of URLs, and nothing that a CI runner would execute.
    """
    text = json.dumps(public(document), indent=2, allow_nan=False)
    typer.echo(re.sub("#(?=#)", r"\\u0023", text))
