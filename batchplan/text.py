"""Makes text from outside, such as paths and file contents, safe to print."""

import re

# What CI runners execute when they read a log: "::" at the start of a line (GitHub), "##[error]" or
# "##vso[...]" anywhere in it (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")


def one_line(text: str) -> str:
    """The text with newlines, escape codes, other unprintable characters and commands to CI runners
    escaped."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)


def clean(text: str) -> str:
    """The text with `one_line` applied to each of its lines."""
    return "\n".join(map(one_line, text.split("\n")))
