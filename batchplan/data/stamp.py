"""Detects mapped files that change after their header was read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, NamedTuple

from batchplan.files.reading import changed_error, readable
from batchplan.files.remote import RemotePath, ShardPath


class Stamp(NamedTuple):
    """The state of a file.

    Attributes:
        path: absolute.
        file: device and inode, which identify the file.
        size: bytes.
        written, touched: ns; the last change of its content, and of anything including its name
            and permissions.
    """

    path: str
    file: tuple[int, int]
    size: int
    written: int
    touched: int

    @classmethod
    def opened(cls, path: ShardPath, file: IO[bytes]) -> Stamp:
        """The stamp of an open file. A remote file checks for changes itself."""
        if isinstance(path, RemotePath):
            return cls(str(path), (0, 0), path.size, path.written, path.written)
        return cls.of(path, os.fstat(file.fileno()))

    @classmethod
    def of(cls, path: str | Path, status: os.stat_result) -> Stamp:
        """The stamp of a file, from os.stat or os.fstat."""
        file = status.st_dev, status.st_ino
        times = status.st_mtime_ns, status.st_ctime_ns
        return cls(os.path.abspath(path), file, status.st_size, *times)

    def untouched(self, name: str) -> bool:
        """Whether nothing about the file has changed; messages begin with ``name``.

        If its name is gone or belongs to another file now, the map still shows the old file, which
        nobody can open any more.

        Raises:
            InputError: its content changed, or its state cannot be read.
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
