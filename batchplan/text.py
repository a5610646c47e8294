"""Makes text from outside, such as paths and file contents, safe to print."""

import re
from collections.abc import Iterable

# What CI runners execute when they read a log: "::" at the start of a line (GitHub), "##[error]" or
# "##vso[...]" anywhere in it (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")


# The user and the password of a URL, with a "/" in the password too, and the query, in a text; also
# of one whose "//" a path has shortened.
_SECRETS = re.compile(
    r"(\b[A-Za-z][A-Za-z0-9+.-]+:/{1,2})(?!/)"
    r"(?:[^\s/@:]*:(?!\d*(?:[/?\s]|$))[^\s@]*@|[^\s/@]*@)?"
    r"([^\s?]*)(?:\?[^\s]*?(?=[:;,.)'\"]*(?:\s|$)))?"
)


def without_secrets(text: str) -> str:
    """The text with its URLs cut to scheme, host and path: the rest may be keys."""
    return _SECRETS.sub(r"\1\2", text) if ":/" in text else text


def one_line(text: str) -> str:
    """The text with newlines, escape codes, other unprintable characters and commands to CI runners
    escaped."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)


def clean(text: str) -> str:
    """The text with `one_line` applied to each of its lines."""
    return "\n".join(map(one_line, text.split("\n")))


def meant(name: object, known: Iterable[str]) -> str:
    """A question that names the nearest known name, to end a message with; empty if none is
    near."""
    from difflib import get_close_matches  # on use, since --help loads this module

    near = get_close_matches(str(name), list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
