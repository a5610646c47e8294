"""Names from outside, such as paths, made fit to be shown."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with newlines, escape codes and other unprintable characters spelled out."""
    return "".join(part if part.isprintable() else repr(part)[1:-1] for part in text)
