"""Advisory locks: a folder has one writer at a time, and files are marked while their writer lives.

The system releases both when the process ends in any way. In a file system without such locks, two
writers at once may mix their files, and leftovers of killed writers stay.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE = 5.0  # seconds; work under a lock takes milliseconds
_PAUSE = 0.005


@contextmanager
def folders_locked(folders: Iterable[Path]) -> Iterator[bool]:
    """Keep other writers out of these folders; yields whether all could be locked."""
    held: list[int] = []
    try:
        # Sorted, so that two writers of the same folders cannot deadlock.
        alone = all(_lock_folder(folder, held) for folder in sorted(set(folders)))
        yield alone
    finally:
        for descriptor in held:
            os.close(descriptor)


def mark_alive(descriptor: int) -> bool:
    """Mark a file as in use by this process while it is open; False if another one uses it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no such locks in this file system
        pass
    return True


def is_marked(path: Path) -> bool | None:
    """Return whether a living process has marked a file with `mark_alive`; False if there is no
    such file, None if the file system has no locks."""
    try:
        return _is_locked(path)
    except OSError:
        return False


def is_abandoned(path: Path) -> bool:
    """Return whether the process that marked a file with `mark_alive` has ended."""
    try:
        return _is_locked(path) is False
    except OSError:
        return False


def _is_locked(path: Path) -> bool | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _lock_folder(folder: Path, held: list[int]) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    held.append(descriptor)
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        except OSError:
            return False
