"""What a command says besides tables: lines on standard error, documents on standard output.

Text reaches a terminal or a log by this module, `batchplan.cli.console` and `print_json` alone,
and by none of them as an escape code or as a command to a CI runner.
"""

from __future__ import annotations

from typing import Any

import typer

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


def print_document(text: str) -> None:
    """Lines on standard output, in UTF-8 wherever that goes, as programs expect them."""
    typer.echo(clean(text).encode(), nl=False)
