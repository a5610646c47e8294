"""Text from outside, such as paths and what files hold, made fit to be shown."""

import re

# What a CI runner that reads a log takes for a command: "::" where a line begins (GitHub), and
# "##[error]" or "##vso[...]" anywhere in it (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")


def one_line(text: str) -> str:
    """The text with newlines, escape codes and other unprintable characters spelled out, and so
    that it is no command to a CI runner."""
    if not text.isprintable():
        text = "".join(part if part.isprintable() else repr(part)[1:-1] for part in text)
    return _COMMAND.sub(lambda found: f"{found[1] or ''}\\x{ord(found[0][-1]):02x}", text)


def clean(text: str) -> str:
    """The text with each of its lines as `one_line` has it."""
    return "\n".join(map(one_line, text.split("\n")))
