"""The summary file of a CI step, to which `check` appends its verdicts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES

from batchplan.errors import InputError, OutputError

_VARIABLE = "GITHUB_STEP_SUMMARY"


def summary_file() -> str:
    """The path of the file, after a check that it exists or can be created.

    Raises:
        InputError: the environment names no file.
        OutputError: it cannot be written.
    """
    path = os.environ.get(_VARIABLE)
    if not path:
        raise InputError(
            f"--summary: ${_VARIABLE} is not set, expected the path that GitHub Actions sets; "
            "leave out --summary elsewhere"
        )
    with _append_errors(path):
        try:
            os.stat(path)
        except FileNotFoundError:
            folder = os.path.dirname(os.path.realpath(path))
            os.stat(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(EACCES, os.strerror(EACCES)) from None
        else:  # O_NONBLOCK: do not wait for the reader of a pipe
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))
    return path


@contextmanager
def appended(path: str, text: str) -> Iterator[None]:
    """Append the text to the file, and remove it again if the body fails.

    Raises:
        OutputError: it could not be written.
    """
    size = os.path.getsize(path) if os.path.exists(path) else None
    try:
        with _append_errors(path), open(path, "ab", buffering=0) as stream:
            rest = text.encode()
            while rest:
                rest = rest[stream.write(rest) or 0 :]
        yield
    except BaseException:
        with suppress(OSError):  # text cannot be removed from a pipe
            if size is None:
                os.unlink(path)
            else:
                os.truncate(path, size)
        raise


@contextmanager
def _append_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: could not be appended to ({error.strerror or error}); ${_VARIABLE} must name "
            "a file that can be written, or leave out --summary"
        ) from error
