"""Advisory locks that mark files while the process that uses them lives.

The system releases them when the process ends in any way. Some file systems have no such locks.
"""

import fcntl
import os
from pathlib import Path


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
