"""Prints lines on standard error, and documents on standard output.

All text reaches a terminal or log through this module or `batchplan.cli.console`. Both remove
escape codes and commands to CI runners.
"""

import json
import re
from typing import Any

import typer

from batchplan.pages import linked
from batchplan.text import clean, one_line


def say(text: str) -> None:
    """Print one line on standard error."""
    typer.echo(one_line(linked(text)), err=True)


def show_warning(message: Warning | str, *_args: Any, **_kwargs: Any) -> None:
    """A `warnings.showwarning` that prints one line: NumPy's warnings quote damaged files."""
    say(f"warning: {message}")


def print_document(text: str) -> None:
    """Print lines on standard output, always in UTF-8, as programs expect."""
    typer.echo(clean(text).encode(), nl=False)


def print_json(document: dict[str, Any]) -> None:
    """Print a JSON document on standard output, in ASCII, with nothing that a CI runner would
    execute."""
    text = json.dumps(document, indent=2, allow_nan=False)
    typer.echo(re.sub("#(?=#)", r"\\u0023", text))
