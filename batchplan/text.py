"""Makes text from outside, such as paths and file contents, safe to print."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# What CI runners execute when they read a log: "::" at the start of a line (GitHub), "##[error]" or
# "##vso[...]" anywhere in it (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")


_URL = re.compile(r"[A-Za-z0-9+.-]{2,}:/+")  # of one "/" where a path has shortened it
_LOCAL = "file:///"  # begins no user
# A ":" before the first "/", and no port behind it: a password whose "@" is missing or cut off.
_PASSWORD = re.compile(r"([A-Za-z0-9+.-]{2,}:/{1,2})[^\s/]*:(?!\d*(?:[\s/:,;)\"']|$)).*", re.DOTALL)
_HIDDEN = "..."


def without_secrets(text: str) -> str:
    """The text with its URLs cut to scheme, host and path, as the rest may be keys.

    Keys may have any characters, also a space, a "/" or a "?", so that nothing tells where a URL
    ends: from the first one on, all up to the last "@" and all from the first "?" is left out.
    Apply it to a name before a sentence is made of it.
    """
    urls = list(_URL.finditer(text))
    if not urls:
        return text
    start = next((url.end() for url in urls if url[0].lower() != _LOCAL), len(text))
    query, after_user = text.find("?", urls[0].end()), text.rfind("@") + 1
    stop = query if 0 <= query < len(text) - 1 else len(text)
    if after_user > stop:  # either may be part of the other
        return text[: min(start, stop)] + _HIDDEN
    shown = text[:stop]
    if after_user > start:
        # Where more than a user may be missing, the text says so.
        mark = f"{_HIDDEN} " if re.search(r"\s", text[start:after_user]) else ""
        shown = text[:start] + mark + text[after_user:stop]
    return _PASSWORD.sub(rf"\1{_HIDDEN}", shown)


def without_urls(text: str) -> str:
    """The text up to the scheme of its first URL, for one that may have no more than the beginning
    of that URL: what follows may be a key whose end is missing."""
    url = _URL.search(text)
    return text if url is None else text[: url.end()] + _HIDDEN


def public(value: Any) -> Any:
    """A value as JSON holds it, `without_secrets` in any of its texts: what is stored, and shown,
    of options and other facts."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {public(key): public(inner) for key, inner in value.items()}
    return [public(inner) for inner in value] if isinstance(value, list | tuple) else value


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
