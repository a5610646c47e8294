"""Where embeddings were read from, so that another process can open the same files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from batchplan.data.wanted import Wanted
from batchplan.errors import InputError
from batchplan.files.reading import readable
from batchplan.files.remote import RemotePath, ShardPath
from batchplan.options import ShardOrder


@dataclass(frozen=True)
class Origin:
    """The files of embeddings and how they are read; `absolute` can be sent to other machines.

    Attributes:
        x, y: the files of each side; y is empty if the files of x have both sides, or if there is
            one matrix.
        negatives: the files of each source of mined negatives.
        wanted: the columns that the user named.
        shard_order: the order of files in folders and globs that the user named.
        states: size in bytes and time of writing in ns of each of the `files`, before they were
            opened.
    """

    x: Sequence[ShardPath]
    y: Sequence[ShardPath]
    negatives: Sequence[Sequence[ShardPath]]
    wanted: Wanted
    shard_order: ShardOrder | None
    states: tuple[tuple[int, int], ...] = ()

    def watched(self) -> "Origin":
        """Return the origin with the states of its files, which are about to be opened."""
        return replace(self, states=tuple(map(_state, self.files)))

    def absolute(self) -> "Origin":
        """Return the origin with absolute paths. It can be hashed."""
        return replace(
            self,
            x=_absolute(self.x),
            y=_absolute(self.y),
            negatives=tuple(map(_absolute, self.negatives)),
        )

    @property
    def files(self) -> tuple[ShardPath, ...]:
        """All files: of x, of y and of negatives."""
        return (*self.x, *self.y, *chain(*self.negatives))

    def require_same(self) -> None:
        """Require that the files are as they were, here and now.

        Raises:
            InputError: a file is missing, or of another size or time; names it.
        """
        for path, before in zip(self.files, self.states, strict=True):
            if (now := _state(path)) != before:
                raise InputError(
                    f"{path}: got {now[0]} bytes written at {now[1]} ns, expected {before[0]} "
                    f"bytes written at {before[1]} ns, as the process that plans saw it; share "
                    "the folder, or copy it with its times (rsync -t)"
                )


def _absolute(paths: Sequence[ShardPath]) -> tuple[ShardPath, ...]:
    return tuple(
        path if isinstance(path, RemotePath) else Path(os.path.abspath(path)) for path in paths
    )


def _state(path: ShardPath) -> tuple[int, int]:
    if isinstance(path, RemotePath):  # which requires this state wherever it is opened
        return path.size, path.written
    with readable(path):
        status = os.stat(path)
    return status.st_size, status.st_mtime_ns
