"""Advisory locks that mark files while the process that uses them lives.

The system releases them when the process ends in any way. Some file systems have no such locks.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

_TRIES, _PAUSE = 100, 0.01  # to mark a file, and seconds between two tries
_HELD: WeakValueDictionary[str, BinaryIO] = WeakValueDictionary()  # of this process, by file


def _give_up() -> None:
    """Close the held files in a forked process, such as a loader's worker, which may outlive this
    one."""
    for stream in [*_HELD.values()]:
        stream.close()
    _HELD.clear()


os.register_at_fork(after_in_child=_give_up)


def hold(path: Path) -> BinaryIO | None:
    """Open a file to append to it, and mark it as in use by this process until it is closed. If
    this process holds it already, return the same file; None if another process uses it."""
    name = os.path.realpath(path)
    stream = _HELD.get(name)
    if stream is None or not is_at(stream, path):
        stream = open(name, "ab+")  # noqa: SIM115  (open as long as its owner lives)
        if not _marked_soon(stream.fileno()):
            return None
        _HELD[name] = stream
    return stream


def is_at(stream: BinaryIO, path: Path) -> bool:
    """Return whether an open file is the one at a path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    return False


def _marked_soon(descriptor: int) -> bool:
    """Return whether a file could be marked. Other processes lock it for moments when they look at
    it."""
    for _ in range(_TRIES):
        if mark_alive(descriptor):
            return True
        time.sleep(_PAUSE)
    return False


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
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
