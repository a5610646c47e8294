"""Finds links and files that other users made in shared folders, such as /tmp.

There anyone can take a name before we do, with a link to a place where only we may write.
"""

import os
import stat
from pathlib import Path

from batchplan.errors import InputError

_MOST_LINKS = 40  # as Linux follows


def is_foreign(path: Path) -> bool:
    """Whether a file, folder or link belongs to another user except root, and is in a folder in
    which all may make names; False if it does not exist."""
    try:
        return _is_foreign(path, os.lstat(path))
    except FileNotFoundError:
        return False


def target_of(path: Path) -> Path:
    """The path without links, so that files can be written next to it and renamed.

    Links in circles stay. ``fs.protected_symlinks`` of Linux does not help here: it refuses foreign
    links only when they are opened.

    Raises:
        InputError: a link is foreign.
        FileNotFoundError: the path is relative to a folder that is gone.
    """
    place, names, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    while names:
        name = names.pop()
        step = place.parent if name == ".." else place / name
        link = _own_link(step, path) if links < _MOST_LINKS else None
        if link is None:
            place = step
            continue
        links += 1
        place = Path(link.anchor or place)
        names += reversed(link.relative_to(link.anchor).parts)
    return place


def _own_link(step: Path, path: Path) -> Path | None:
    """The target of a link; None if it is no link. ``path`` is for the message."""
    try:
        status = os.lstat(step)  # before the link is read: others cannot replace one of ours
        if not stat.S_ISLNK(status.st_mode):
            return None
        if not _is_foreign(step, status):
            return Path(os.readlink(step))
    except OSError:
        return None
    raise InputError(
        f"{path}: {step} is a link of another user, in a folder in which all may make links; name "
        "the file that it leads to, or choose another folder"
    )


def _is_foreign(path: Path, status: os.stat_result) -> bool:
    all_may_write = os.stat(path.parent).st_mode & stat.S_IWOTH
    return bool(all_may_write) and status.st_uid not in (0, os.geteuid())
