"""Files that no other user can have written, for content that is run.

A file or folder is trusted if it belongs to the user or to root, and nobody else may write to it.
All folders above it must be trusted too, because who may write to a folder can replace what is in
it. A folder above may be sticky like /tmp: there nobody can replace what belongs to others.
"""

import errno
import grp
import os
import pwd
import secrets
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

_STEPS = 1000  # along a path and its symbolic links, which may form a circle
_ACL = "system.posix_acl_access"  # lists others who may write, if the mode has the group's bit


def read_trusted(path: Path) -> bytes:
    """Return the content of a trusted file.

    Raises:
        OSError: the file cannot be read or is not trusted.
    """
    place = _trusted_folder(path.parent, make=False) / path.name
    with open(place, "rb", opener=_open) as file:
        _require_trusted(place, os.fstat(file.fileno()))
        return file.read()


def write_trusted(path: Path, content: bytes) -> None:
    """Write or replace a file in a trusted folder, so that all users may read it.

    Missing folders are made.

    Raises:
        OSError: the file cannot be written, or its folder is not trusted.
    """
    place = _trusted_folder(path.parent, make=True) / path.name
    staged = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
    try:
        with open(staged, "xb", opener=_open) as file:
            file.write(content)
        os.replace(staged, place)
    except BaseException:
        with suppress(OSError):
            staged.unlink()
        raise


def _open(path: str, flags: int) -> int:
    """Open a file, but no symbolic link. Others may not write to a new one, whatever the umask."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _trusted_folder(path: Path, *, make: bool) -> Path:
    """Return the folder without symbolic links.

    The way goes down from the root. What is in a trusted folder stays as it was checked, because
    nobody else can replace it.
    """
    place, rest = Path("/"), [*reversed(path.absolute().parts)]
    for _ in range(_STEPS):
        if not rest:
            _require_trusted(place, os.lstat(place))
            return place
        entry = place / rest.pop()
        if make and not os.path.lexists(entry):
            with suppress(FileExistsError):  # another process was faster
                entry.mkdir(0o755)
        status = os.lstat(entry)
        is_link = stat.S_ISLNK(status.st_mode)
        _require_trusted(entry, status, may_share=is_link or bool(status.st_mode & stat.S_ISVTX))
        if is_link:
            rest.extend(reversed(Path(os.readlink(entry)).parts))
        else:
            place = entry
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _require_trusted(place: Path, status: os.stat_result, *, may_share: bool = False) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"{place} belongs to another user")
    if not may_share and _is_shared(place, status):
        raise PermissionError(errno.EPERM, f"other users may write to {place}")


def _is_shared(place: Path, status: os.stat_result) -> bool:
    """Whether users besides the owner and root may write to a file or folder."""
    if status.st_mode & stat.S_IWGRP:
        listed = os.listxattr(place, follow_symlinks=False) if hasattr(os, "listxattr") else []
        if _ACL in listed or not _is_alone_in(status.st_gid, os.geteuid()):
            return True
    return bool(status.st_mode & stat.S_IWOTH)


@cache
def _is_alone_in(group: int, user: int) -> bool:
    """Whether a group has no members but the user and root.

    Many systems give each user such a group and let it write to the user's files.
    """
    try:
        name, members = pwd.getpwuid(user).pw_name, set(grp.getgrgid(group).gr_mem)
    except KeyError:  # a container may lack names
        return False
    members.update(other.pw_name for other in pwd.getpwall() if other.pw_gid == group)
    return members <= {name, "root"}
