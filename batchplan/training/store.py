"""The float16 vectors of all rows, in temporary files that a second process can open."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError
from batchplan.files.scratch import mapped, scratch_file
from batchplan.typing import Int64Array


class Store:
    """The vectors that a plan is made from, in the process of rank 0.

    They take 2 N d bytes per side, in files without names.

    Args:
        num_rows: N, rows of the data set.

    Attributes:
        sides: the vectors of x, y and mined negatives, float16 (N, d) each; none before the first
            `put`.
        met: bool (N,), the rows that have vectors.
        same: for each side, int64 (2, n): rows, and the rows whose vectors they get. None before
            `keep_same`.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self.sides: list[NDArray[np.float16]] = []
        self.met = np.zeros(num_rows, bool)
        self.same: list[Int64Array] | None = None
        self._files: list[BinaryIO] = []

    def put(self, part: NDArray[Any], rank: int) -> None:
        """Take over the vectors that a process saved.

        Args:
            part: as `save_part` writes it.
            rank: of that process, for the message.

        Raises:
            InputError: another number of sides, or of numbers in a vector, than the others.
            ResourceError: there is no room for the files.
        """
        sides = [part[name] for name in part.dtype.names or () if name != "row"]
        if not self.sides and len(part):
            shape = self._num_rows, sides[0].shape[1]
            self._files = [scratch_file(2 * shape[0] * shape[1]) for _ in sides]
            self.sides = [mapped(file, np.float16, shape) for file in self._files]
        if len(part) and len(sides) != len(self.sides):
            raise InputError(
                f"embed: returned {len(sides)} of the sides x, y and mined negatives in the "
                f"process of rank {rank}, expected {len(self.sides)}, as in the others"
            )
        for kept, side in zip(self.sides, sides, strict=False):
            if kept.shape[1:] != side.shape[1:]:
                raise InputError(
                    f"embed: returned vectors of {side.shape[1]} numbers in the process of "
                    f"rank {rank}, expected {kept.shape[1]}, as in the others"
                )
            kept[part["row"]] = side
        self.met[part["row"]] = True

    def keep_same(self, firsts: Sequence[Int64Array]) -> None:
        """Keep which rows share a vector, such as rows of an equal text, for `share`.

        Args:
            firsts: for each side, int64 (N,), the row whose vector each row gets.
        """
        others = [np.flatnonzero(first != np.arange(len(first))) for first in firsts]
        self.same = [np.stack((rows, own[rows])) for rows, own in zip(others, firsts, strict=True)]

    def share(self) -> None:
        """Copy vectors to the rows that share the vectors of other rows."""
        for side, (rows, first) in zip(self.sides, self.same or (), strict=False):
            side[rows] = side[first]

    def lend(self) -> tuple[dict[str, Any], list[BinaryIO]]:
        """Return the JSON values that `borrowed` takes, and the files whose descriptors another
        process must inherit."""
        same_files = []
        for pairs in self.same or ():
            same_files.append(scratch_file(pairs.nbytes))
            mapped(same_files[-1], np.int64, pairs.shape)[:] = pairs
        document = {
            "shape": self.sides[0].shape,
            "sides": [file.fileno() for file in self._files],
            "same": [
                (file.fileno(), pairs.shape)
                for file, pairs in zip(same_files, self.same or (), strict=True)
            ],
        }
        return document, [*self._files, *same_files]

    @classmethod
    def borrowed(cls, document: Mapping[str, Any]) -> "Store":
        """Open the store that another process lends. Both processes see what either puts there."""
        shape = tuple(document["shape"])
        store = cls(shape[0])
        store._files = [os.fdopen(number, "r+b") for number in document["sides"]]
        store.sides = [mapped(file, np.float16, shape) for file in store._files]
        store.same = []
        for number, pairs in document["same"]:
            with os.fdopen(number, "r+b") as file:
                store.same.append(mapped(file, np.int64, tuple(pairs)))
        return store
