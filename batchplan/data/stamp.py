"""Whether a mapped file changed since its header was read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from batchplan.errors import InputError
from batchplan.files.reading import readable


class Stamp(NamedTuple):
    """A state of a file.

    Attributes:
        path: absolute.
        file: device and inode, which say which file it is.
        size: bytes.
        written, touched: ns, when its content last changed, and when anything about it last did,
            including its name and permissions.
    """

    path: str
    file: tuple[int, int]
    size: int
    written: int
    touched: int

    @classmethod
    def of(cls, path: str | Path, found: os.stat_result) -> Stamp:
        """The stamp of a file, from what os.stat or os.fstat found."""
        file = found.st_dev, found.st_ino
        times = found.st_mtime_ns, found.st_ctime_ns
        return cls(os.path.abspath(path), file, found.st_size, *times)

    def untouched(self, name: str) -> bool:
        """Whether nothing about the file changed since; messages begin with ``name``.

        If its name is gone or belongs to another file now, the map still shows the old file, which
        nobody can write to any more.

        Raises:
            InputError: it was written to, or cannot be looked up.
        """
        with readable(name):
            try:
                now = Stamp.of(self.path, os.stat(self.path))
            except FileNotFoundError:
                return True
        if now.file != self.file:
            return True
        if (now.size, now.written) != (self.size, self.written):
            same = now.size == self.size
            got = "a later time of writing" if same else f"{now.size} bytes, before {self.size}"
            raise changed_error(name, got)
        return now.touched == self.touched


def changed_error(name: str | Path, got: str) -> InputError:
    """The refusal of a file that changed after its header was read."""
    return InputError(
        f"{name}: was written to while it was in use (got {got}), so results would be of rows that "
        "never were together; run again when it is complete: a new version that is written "
        "elsewhere and then renamed does no harm"
    )
