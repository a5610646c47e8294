"""Writes several files as a transaction: all or none.

At any moment each file is absent, complete and old, or complete and new. New content is first
written next to its target; then the files are renamed one by one. All but the last keep their old
content at `older_path`, from which it is restored if a later rename fails. A process that is killed
between two renames restores nothing. If one file describes the other, a reader then finds the
matching one at `older_path`.
"""

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from batchplan.errors import OutputError
from batchplan.files.locks import folders_locked, is_abandoned, mark_alive
from batchplan.files.reading import open_regular
from batchplan.files.signals import signals_deferred

Writer = Callable[[BinaryIO], object]

_PREFIX, _STAGED, _OLDER = ".batchplan-", ".tmp", ".old"
_PERMISSIONS = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
_UNCHANGED = "existing files are unchanged; free some space or choose another folder"


def write_files(contents: Mapping[Path, Writer | bytes], *, folder: Path | None = None) -> None:
    """Write all files, or leave all unchanged.

    Content is bytes, or a function that writes to a stream. All content is forced to disk next to
    its target before the first file is put in place. Files are put in place in their order, while
    SIGINT, SIGTERM and SIGHUP wait. Symbolic links are followed. New files get the permissions of
    the umask, replaced files keep theirs. Leftovers of killed writers in the same folders are
    removed.

    Args:
        contents: by path.
        folder: created if it is missing, and removed again if writing fails.

    Raises:
        OutputError: a file could not be written; the message says in which state the files are.
    """
    files = [_File(path, content) for path, content in contents.items()]
    folders = {file.target.parent for file in files}
    with _created(folder):
        try:
            with folders_locked(folders) as alone:
                if alone:
                    _sweep(folders)
                for file in files:
                    with output_errors(file.path):
                        file.create()
            for file in files:
                with output_errors(file.path):
                    file.fill()
            with signals_deferred(), folders_locked(folders):
                _put_in_place(files)
        finally:  # also after an interrupt
            with signals_deferred():
                for file in files:
                    file.clean()


def older_path(path: Path) -> Path:
    """Return where `write_files` keeps the old file until all are in place; empty if there is
    none."""
    return _older(Path(os.path.realpath(path)))


def _older(target: Path) -> Path:
    """`older_path` of a path without links. It is not resolved: it may be a link by now."""
    name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    return target.with_name(f"{_PREFIX}{name}{_OLDER}")


def is_older(path: Path) -> bool:
    """Return whether a path is an `older_path`."""
    return path.name.startswith(_PREFIX) and path.suffix == _OLDER


def remove(path: Path) -> None:
    """Try to remove a file that is no longer needed."""
    for _ in range(2):  # a busy file or a network file system may allow it the second time
        with suppress(OSError):
            path.unlink(missing_ok=True)
            return


class _File:
    """A file to write: hidden next to its target first, then put in place."""

    def __init__(self, path: Path, content: Writer | bytes) -> None:
        self.path = path
        self.target = Path(os.path.realpath(path))
        self._content = content
        self._staged = self.target.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_STAGED}")
        self._stream: BinaryIO | None = None
        self._existed = False

    def create(self) -> None:
        """Create the hidden file, empty."""
        self._stream = open(self._staged, "xb")  # noqa: SIM115  (closed by `clean`)
        mark_alive(self._stream.fileno())

    def fill(self) -> None:
        """Write the content to the hidden file, and force it to disk."""
        stream = self._opened
        if self.target.exists():
            os.fchmod(stream.fileno(), self.target.stat().st_mode & _PERMISSIONS)
        if isinstance(self._content, bytes):
            stream.write(self._content)
        else:
            self._content(stream)
        stream.flush()
        os.fsync(stream.fileno())

    def back_up(self) -> None:
        """Give the current target a second name."""
        older = _older(self.target)
        older.unlink(missing_ok=True)
        self._existed = self.target.exists()
        if not self._existed:
            older.touch(exist_ok=False)
            return
        try:
            os.link(self.target, older)
        except OSError:  # no hard links in this file system; or over a network, a lost reply
            if not older.exists() or not older.samefile(self.target):
                with open_regular(self.target, "a file") as source, open(older, "xb") as copy:
                    shutil.copyfileobj(source, copy)
                shutil.copystat(self.target, older)

    def put_in_place(self) -> None:
        """Rename the new file to the target."""
        try:
            os.replace(self._staged, self.target)
        except OSError:
            if not self._is_in_place():  # over a network, only the reply may be lost
                raise
        sync_folder(self.target.parent)

    def put_back(self) -> None:
        """Restore the target from before `back_up`."""
        if self._is_in_place():
            if self._existed:
                os.replace(_older(self.target), self.target)
            else:
                self.target.unlink()
            sync_folder(self.target.parent)
        remove(_older(self.target))

    def clean(self) -> None:
        """Remove everything but the target."""
        if self._stream is not None:
            with suppress(OSError):  # unwritten content is not needed
                self._stream.close()
        remove(self._staged)

    @property
    def _opened(self) -> BinaryIO:
        if self._stream is None:
            raise RuntimeError(f"{self.path}: filled before it was created")
        return self._stream

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self.target.stat(), os.fstat(self._opened.fileno()))
        except OSError:
            return False


def _put_in_place(files: Sequence[_File]) -> None:
    if not files:
        return
    *others, last = files
    begun: list[_File] = []
    try:
        for file in others:
            with output_errors(file.path):
                begun.append(file)
                file.back_up()
                file.put_in_place()
        with output_errors(last.path):
            last.put_in_place()
    except BaseException as error:
        if stuck := [file for file in reversed(begun) if not _restored(file)]:
            raise OutputError(_partial_message(error, stuck)) from error
        raise
    for file in others:
        remove(_older(file.target))


def _restored(file: _File) -> bool:
    try:
        file.put_back()
    except OSError:
        return False
    return True


def _partial_message(error: BaseException, stuck: Sequence[_File]) -> str:
    reason = str(error).removesuffix(_UNCHANGED)
    names = ", ".join(f"{file.path} (old content: {_older(file.target)})" for file in stuck)
    return f"{reason}already replaced and could not be restored: {names}; write all again"


@contextmanager
def _created(folder: Path | None) -> Iterator[None]:
    if folder is None or folder.is_dir():
        yield
        return
    try:
        with output_errors(folder):
            folder.mkdir(exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # only if it is empty
        raise


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn system errors while ``path`` is written into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: could not be written ({error.strerror or error}); {_UNCHANGED}"
        ) from error


def _sweep(folders: set[Path]) -> None:
    """Remove the hidden files of writers that were killed while they wrote."""
    for folder in folders:
        with suppress(OSError):
            for path in folder.glob(f"{_PREFIX}*{_STAGED}"):
                if is_abandoned(path):
                    remove(path)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut. Errors are ignored: the files are in place
    already, and some network file systems cannot do this."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
