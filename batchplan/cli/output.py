"""Prints lines on standard error, and documents on standard output.

All text reaches a terminal or log through this module or `batchplan.cli.console`. Both remove
escape codes, commands to CI runners and keys of URLs.
"""

import json
import re
from typing import Any

import typer

from batchplan.text import clean, one_line, public, without_secrets


def say(text: str) -> None:
    """Print one line on standard error."""
    typer.echo(one_line(without_secrets(text)), err=True)


def show_warning(message: Warning | str, *_args: Any, **_kwargs: Any) -> None:
    """A `warnings.showwarning` that prints one line: NumPy's warnings quote damaged files."""
    say(f"warning: {message}")


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
