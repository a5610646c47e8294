"""Opens files that users name: system errors become ours, and endless files are refused."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from batchplan.errors import InputError, OutputError, ResourceError

_CHUNK = 1 << 20


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turn system errors about ``path`` into an InputError or a ResourceError."""
    try:
        yield
    except OutputError:  # also an OSError, but about another file
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file or folder; check the path") from error
    except PermissionError as error:
        raise InputError(f"{path}: permission denied; make it readable for this user") from error
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ResourceError(
                f"{path}: too many open files, because every mapped shard stays open; "
                "raise the limit with `ulimit -n`, or merge shards"
            ) from error
        if error.errno == errno.ENOMEM:
            raise ResourceError(f"{path}: cannot be mapped, not enough memory") from error
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def changed_error(name: object, got: str) -> InputError:
    """Return the error for a file that changed after its header was read."""
    return InputError(
        f"{name}: was written to while it was in use (got {got}), so results would mix old and new "
        "rows; run again when it is complete: it is safe to write a new version elsewhere and "
        "rename it"
    )


@contextmanager
def open_regular(path: Path | str, what: str) -> Iterator[BufferedReader]:
    """Open a regular file for reading, without waiting for a pipe or reading a device.

    Args:
        path: the file.
        what: the expected content for the message, such as ``a plan``.

    Raises:
        InputError: missing, unreadable, or not a regular file.
        ResourceError: the system is out of file handles.
    """
    with readable(path):
        # O_NONBLOCK, which regular files ignore: else opening a pipe waits for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path}: is not a regular file, expected {what}")
    with open(descriptor, "rb") as stream:
        yield stream


def read_regular(path: Path | str, most: int, what: str) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file.
        most: largest size in bytes.
        what: the expected content for the message, such as ``a baseline``.

    Raises:
        InputError: as `open_regular`, or a larger file.
        ResourceError: the system is out of file handles.
    """
    content = bytearray()
    with open_regular(path, what) as stream, readable(path):
        while len(content) <= most and (chunk := stream.read(_CHUNK)):
            content += chunk
    if len(content) > most:
        raise InputError(f"{path}: more than {most >> 20} MiB, too much for {what}")
    return bytes(content)
