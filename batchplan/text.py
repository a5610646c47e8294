"""Makes text from outside, such as paths and file contents, safe to print."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# CI runners execute commands that they read in a log: "::" at the start of a line (GitHub),
# "##[error]" or "##vso[...]" anywhere in a line (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")


_URL = re.compile(r"[A-Za-z0-9+.-]{2,}:/+")  # with one "/" if a path has shortened it
_LOCAL = "file:///"  # no user follows
# A ":" before the first "/", and no port after it: a password with its "@" missing or cut off.
_PASSWORD = re.compile(r"([A-Za-z0-9+.-]{2,}:/{1,2})[^\s/]*:(?!\d*(?:[\s/:,;)\"']|$)).*", re.DOTALL)
_HIDDEN = "..."


def without_secrets(text: str) -> str:
    """Cut the URLs of a text to scheme, host and path, since the rest may be keys.

    A key may have any characters, also a space, a "/" or a "?", so the end of a URL is not known.
    From the first URL on, everything up to the last "@" and everything from the first "?" is left
    out. Apply this to a name before it becomes part of a sentence.
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
        # If more than a user may be missing, dots show it.
        mark = f"{_HIDDEN} " if re.search(r"\s", text[start:after_user]) else ""
        shown = text[:start] + mark + text[after_user:stop]
    return _PASSWORD.sub(rf"\1{_HIDDEN}", shown)


def without_urls(text: str) -> str:
    """Cut a text after the scheme of its first URL.

    Use it for a text that may end within a URL: the rest may be part of a key.
    """
    url = _URL.search(text)
    return text if url is None else text[: url.end()] + _HIDDEN


def public(value: Any) -> Any:
    """Apply `without_secrets` to all texts of a JSON value, which then may be stored and shown."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {public(key): public(inner) for key, inner in value.items()}
    return [public(inner) for inner in value] if isinstance(value, list | tuple) else value


def one_line(text: str) -> str:
    """Escape newlines, escape codes, other unprintable characters and commands to CI runners."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)


def clean(text: str) -> str:
    """Apply `one_line` to each line of a text."""
    return "\n".join(map(one_line, text.split("\n")))


def meant(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name; empty if none is near."""
    from difflib import get_close_matches  # on use, since --help loads this module

    near = get_close_matches(str(name), list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
