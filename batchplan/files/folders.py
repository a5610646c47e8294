"""Writing a folder as a whole: it appears complete, or not at all.

It is filled under another name next to its place, then renamed. A folder that it replaces is
swapped with it in one step if the system can do that (Linux), and renamed first otherwise.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.atomic import output_errors, remove, sync_folder
from batchplan.files.locks import is_abandoned, mark_alive
from batchplan.files.signals import signals_deferred

_PREFIX, _SUFFIX = ".batchplan-", ".folder"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``path`` when the body ends, and is removed if
    it fails.

    The body must force the content of its files to disk. SIGINT, SIGTERM and SIGHUP wait while the
    folder is put in place. Leftovers of killed writers next to it are removed.

    Args:
        path: a folder that need not exist; its parent must.

    Raises:
        OutputError: the folder could not be made or put in place; what was there before still is.
    """
    target = Path(os.path.realpath(path))
    staged = target.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    descriptor = -1
    try:
        with output_errors(path):
            _sweep(target.parent)
            staged.mkdir()
            descriptor = os.open(staged, os.O_RDONLY | os.O_DIRECTORY)
        mark_alive(descriptor)
        yield staged
        _put_in_place(path, staged, target)
    finally:
        with signals_deferred():
            _remove(staged)
            if descriptor >= 0:
                os.close(descriptor)


@contextmanager
def resumable_folder(path: Path) -> Iterator[Path]:
    """As `new_folder`, but if the body fails, the folder stays next to ``path``, with ``.partial``
    added to its name, and the next call yields it again.

    Raises:
        InputError: another process is filling the folder.
        OutputError: the folder could not be made or put in place; what was there before still is.
    """
    target = Path(os.path.realpath(path))
    staged = target.with_name(f"{target.name}.partial")
    lock = staged / ".lock"
    with output_errors(path):
        staged.mkdir(exist_ok=True)
        descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not mark_alive(descriptor):
            raise InputError(f"{staged}: another run writes to it; wait, or choose another output")
        yield staged
        remove(lock)
        _put_in_place(path, staged, target)
        with signals_deferred():
            _remove(staged)  # what it replaced
    finally:
        os.close(descriptor)


def _put_in_place(path: Path, staged: Path, target: Path) -> None:
    """Force the folders to disk and rename; ``path`` is for messages."""
    with output_errors(path):
        for folder, _, _ in os.walk(staged):
            sync_folder(Path(folder))
    with signals_deferred(), output_errors(path):
        _rename(staged, target)
        sync_folder(target.parent)


def _rename(staged: Path, target: Path) -> None:
    if not target.exists():
        os.rename(staged, target)
    elif not _exchanged(staged, target):
        older = staged.with_suffix(".old" + _SUFFIX)
        os.rename(target, older)
        try:
            os.rename(staged, target)
        except OSError:
            os.rename(older, target)
            raise
        _remove(older)


def _exchanged(first: Path, second: Path) -> bool:
    """Swap the names of two folders; False if the system cannot."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(first), os.fsencode(second)
    return bool(swap(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(folder)


def _sweep(parent: Path) -> None:
    """Remove the hidden folders of writers that were killed."""
    with suppress(OSError):
        for path in parent.glob(f"{_PREFIX}*{_SUFFIX}"):
            if is_abandoned(path):
                _remove(path)
