"""Replaces files: each is absent, complete and old, or complete and new at any moment.

New content is first written next to its target, under a hidden name. When all content is on disk,
the files are renamed one by one. So a writer of several files that is killed between two renames
leaves some old and some new.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from batchplan.errors import OutputError
from batchplan.files.signals import signals_deferred

Writer = Callable[[BinaryIO], object]

_PERMISSIONS = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
_UNCHANGED = "existing files are unchanged; free some space or choose another folder"
_PARTLY = "each file is complete, but some may be new and some old; write all again"


def write_files(contents: Mapping[Path, Writer | bytes]) -> None:
    """Write all files; if content cannot be written, leave all unchanged.

    Content is bytes, or a function that writes to a stream. All content is forced to disk next to
    its target before the first file is put in place. Files are put in place in their order, while
    SIGINT, SIGTERM and SIGHUP wait. Symbolic links are followed. New files get the permissions of
    the umask, replaced files keep theirs.

    Raises:
        OutputError: a file could not be written; the message says in which state the files are.
    """
    targets = {path: Path(os.path.realpath(path)) for path in contents}
    staged = {
        path: target.with_name(f".batchplan-{secrets.token_hex(8)}.tmp")
        for path, target in targets.items()
    }
    try:
        for path, content in contents.items():
            with output_errors(path), open(staged[path], "xb") as stream:
                if targets[path].exists():
                    os.fchmod(stream.fileno(), targets[path].stat().st_mode & _PERMISSIONS)
                if isinstance(content, bytes):
                    stream.write(content)
                else:
                    content(stream)
                stream.flush()
                os.fsync(stream.fileno())
        with signals_deferred():
            for path, target in targets.items():
                with output_errors(path, _PARTLY):
                    os.replace(staged[path], target)
            for folder in {target.parent for target in targets.values()}:
                sync_folder(folder)
    finally:  # also after an interrupt
        with signals_deferred():
            for path in staged.values():
                remove(path)


def make_folder(path: Path) -> None:
    """Make a folder unless it exists; raises OutputError."""
    with output_errors(path):
        path.mkdir(exist_ok=True)


def remove(path: Path) -> None:
    """Try to remove a file that is no longer needed."""
    for _ in range(2):  # a busy file or a network file system may allow it the second time
        with suppress(OSError):
            path.unlink(missing_ok=True)
            return


@contextmanager
def output_errors(path: Path, state: str = _UNCHANGED) -> Iterator[None]:
    """Turn system errors while ``path`` is written into an OutputError that ends with the state of
    the files."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: could not be written ({error.strerror or error}); {state}"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut. Errors are ignored: the files are in place
    already, and some network file systems cannot do this."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
