"""Makes text from outside, such as paths and file contents, safe to print, and refuses URLs with
keys."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from batchplan.errors import InputError

# CI runners execute commands that they read in a log: "::" at the start of a line (GitHub),
# "##[error]" or "##vso[...]" anywhere in a line (GitHub's older form, Azure).
_COMMAND = re.compile(r"^( *):(?=:)|#(?=#\w*\[)")

_URL = re.compile(r"([A-Za-z0-9+.-]{2,}):/+")  # with one "/" if a path has shortened it
# A user without a password, or a container, of the file systems that have them.
_USER = re.compile(r"(?:hdfs|viewfs|gs|gcs|abfss?)://[^/?#:@]+@", re.IGNORECASE)
# Any "@", since a password may have any characters; a ":" before the first "/", without a port.
_PASSWORD = re.compile(r"@|^[^/?#]*:(?!\d*(?:[/?#]|\Z))")
# The parameters of pyarrow's file systems that hold no keys.
_PARAMETERS = {
    "allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "background_writes",
    "blob_storage_authority", "buffer_size", "client_id", "credential_kind", "default_block_size",
    "dfs_storage_authority", "enable_tls", "endpoint_override", "kerb_ticket", "project_id",
    "region", "replication", "retry_limit_seconds", "scheme", "smart_defaults", "tenant_id",
    "tls_ca_dir_path", "tls_ca_file_path", "tls_verify_certificates", "use_hdfs3", "user",
}  # fmt: skip


def keyed_url(text: str) -> str:
    """Return the scheme of the first URL in a text that may have keys; "" if there is none.

    A key may have any characters, so the end of a URL is not known: the rest of the text counts.
    """
    for url in _URL.finditer(text):
        start = _USER.match(text, url.start()) or url
        rest = text[start.end() :]
        names = {part.partition("=")[0] for part in rest.partition("?")[2].split("&")}
        local = url[0].lower() == "file:///"  # no user follows
        if names - {""} - _PARAMETERS or (_PASSWORD.search(rest) and not local):
            return url[1]
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


def clean(text: str) -> str:
    """Apply `one_line` to each line of a text."""
    return "\n".join(map(one_line, text.split("\n")))


def meant(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name; empty if none is near."""
    from difflib import get_close_matches  # on use, since --help loads this module

    near = get_close_matches(str(name), list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
