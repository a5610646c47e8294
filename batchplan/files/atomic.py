"""Replaces files: each is absent, complete and old, or complete and new at any moment.

New content is first written next to its target, under a hidden name. When all content is on disk,
the files are renamed one by one; an error puts the old ones back. So only a writer of several files
that is killed between two renames leaves some old and some new.
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
            _put_in_place({path: (staged[path], target) for path, target in targets.items()})
    finally:  # also after an interrupt
        with signals_deferred():
            for path in staged.values():
                remove(path)


def _put_in_place(files: Mapping[Path, tuple[Path, Path]]) -> None:
    """Rename files to their targets. After an error, put back what was there.

    Args:
        files: by the path for messages, the new file and its target.
    """
    kept: dict[Path, Path | None] = {}  # other names of the old files, by target
    try:
        for new, target in files.values():
            kept[target] = new.with_name(f"{new.name}.old.tmp") if target.exists() else None
        for target, old in kept.items():
            with suppress(OSError):  # some file systems have no links
                os.link(target, old) if old else None
        for path, (new, target) in files.items():
            try:
                os.replace(new, target)
            except OSError:
                mixed = [target for target, old in kept.items() if not _put_back(target, old)]
                with output_errors(path, _PARTLY if mixed else _UNCHANGED):
                    raise
    finally:
        for folder in {target.parent for target in kept}:
            sync_folder(folder)
        for old in filter(None, kept.values()):
            remove(old)


def _put_back(target: Path, old: Path | None) -> bool:
    """Give a target its old content, or remove it if it had none; False if that failed."""
    try:
        os.replace(old, target) if old else target.unlink(missing_ok=True)
    except OSError:
        return False
    return True


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Make a folder unless it exists, and remove it if the body fails and leaves it empty.

    Raises:
        OutputError: it could not be made.
    """
    existed = path.exists()
    with output_errors(path):
        path.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(OSError):  # it has files
                path.rmdir()
        raise


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
