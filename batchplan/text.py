"""Makes text from outside, such as paths and file contents, safe to print, and refuses URLs with
keys."""

import os
import re
import string
from collections.abc import Iterable, Mapping
from typing import Any

from batchplan.errors import InputError

# CI runners execute commands that they read in a log: "::" at the start of a line (GitHub),
# "##[error]" or "##vso[...]" anywhere in a line (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")

# The end of a scheme, with one "/" if a path has shortened it. No scan starts from each character
# of a scheme, which would take quadratic time.
_URL = re.compile(r":(?<=[A-Za-z0-9+.-]{2}:)/+")
_SCHEME = string.ascii_letters + string.digits + "+.-"
_LONGEST = 20  # characters of a scheme that are shown
# A user without a password, or a container, of the file systems that have them.
_WITH_USER = {"hdfs", "viewfs", "gs", "gcs", "abfs", "abfss"}
_USER = re.compile(r"://[^/?#:@]+@")
# A ":" before the first "/", without a port.
_PASSWORD = re.compile(r"[^/?#]*:(?!\d*(?:[/?#]|\Z))")
# The parameters of pyarrow's file systems that hold no keys.
_PARAMETERS = {
    "allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "background_writes",
    "blob_storage_authority", "buffer_size", "client_id", "credential_kind", "default_block_size",
    "dfs_storage_authority", "enable_tls", "endpoint_override", "kerb_ticket", "project_id",
    "region", "replication", "retry_limit_seconds", "scheme", "smart_defaults", "tenant_id",
    "tls_ca_dir_path", "tls_ca_file_path", "tls_verify_certificates", "use_hdfs3", "user",
}  # fmt: skip
_UNKNOWN = re.compile(rf"[?&](?!(?:{'|'.join(sorted(_PARAMETERS))})?(?:[&=]|\Z))")


def keyed_url(text: str) -> str:
    """Return the end of the scheme of the first URL in a text that may have keys; "" if there is
    none.

    A key may have any characters, so the end of a URL is not known: the rest of the text counts.
    """
    last_at = text.rfind("@")  # any counts, since a password may have any characters
    last = max((one.start() for one in _UNKNOWN.finditer(text) if one[0] == "&"), default=-1)
    question = -1  # the first one after the scheme
    for url in _URL.finditer(text):
        before = text[max(0, url.start() - _LONGEST) : url.start()]
        scheme = before[len(before.rstrip(_SCHEME)) :]
        user = _USER.match(text, url.start()) if scheme.lower() in _WITH_USER else None
        start = (user or url).end()
        if question < start:
            question = text.find("?", start) % (len(text) + 1)
        local = scheme.lower() == "file" and url[0] == ":///"  # no user follows
        password = last_at >= start or _PASSWORD.match(text, start)
        if _UNKNOWN.match(text, question) or last > question or (password and not local):
            return scheme
    return ""


def check_urls(value: Any) -> None:
    """Refuse URLs that may have keys, in a text, a path or JSON values. All others may be shown and
    stored.

    Raises:
        InputError: names no more than the scheme.
    """
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for inner in value:
            check_urls(inner)
    elif isinstance(value, str | os.PathLike) and (scheme := keyed_url(os.fspath(value))):
        raise InputError(
            f"{scheme}://...: got a URL with a password or unknown parameters, which logs and "
            "other users of this machine can read, expected keys in the environment, such as "
            "AWS_ACCESS_KEY_ID, or in ~/.aws (docs/formats.md); write @ in a path as %40"
        )


def one_line(text: str) -> str:
    """Escape newlines, escape codes, other unprintable characters and commands to CI runners."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as a command line spells them, one for each value of a list."""
    return [
        one_line(f"--{name.replace('_', '-')} {value!s:.80}")
        for name, values in options.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def counted(count: float, noun: str, plural: str = "") -> str:
    """Return a count with its noun: 1 row, 2,048 rows, 2 batches."""
    shown = f"{count:,.0f}"
    return f"{shown} {noun if shown == '1' else plural or f'{noun}s'}"


def clean(text: str) -> str:
    """Apply `one_line` to each line of a text."""
    return "\n".join(map(one_line, text.split("\n")))


def meant(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name; empty if none is near."""
    from difflib import get_close_matches  # on use, since --help loads this module

    near = get_close_matches(str(name), list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
