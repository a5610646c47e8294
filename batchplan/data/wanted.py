"""The columns that the user named, and how they choose among the vectors of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from batchplan.errors import InputError


@dataclass(frozen=True)
class Wanted:
    """The names of columns, None if not named; an empty ``id`` reads no ids.

    ``negatives`` says whether to read the columns that `is_negative` finds as mined negatives.
    """

    x: str | None = None
    y: str | None = None
    id: str | None = None
    negatives: bool = False

    def split(
        self, vectors: Sequence[str], sides: Sequence[str]
    ) -> tuple[list[str], tuple[str, ...]]:
        """Split vectors into those that may be sides and those of mined negatives.

        Mined negatives are in the order of their numbers; there are none unless they are wanted.
        Arguments as `choose`, or sides ``("negatives",)``.
        """
        named = (self.x, self.y)
        mined = [name for name in vectors if is_negative(name) and name not in named]
        others = [name for name in vectors if name not in mined]
        if not (self.negatives or "negatives" in sides):
            return others or list(vectors), ()
        return others, tuple(sorted(mined, key=lambda name: int(name.partition("_")[2] or 0)))

    def choose(self, vectors: Sequence[str], sides: Sequence[str]) -> tuple[str, ...] | None:
        """Return the vectors of each side, or a single name if there is only one matrix; None if
        unclear.

        Args:
            vectors: the names of all vectors in a file, among them those of ``self``.
            sides: ``("x", "y")`` if the file may have both, else the one it has.
        """
        x, y = self.x, self.y
        named = x is not None or y is not None
        others = [name for name in vectors if name not in (x, y)]
        if len(sides) == 1:
            if named or len(vectors) == 1:
                return (x or y or vectors[0],)
        elif x is not None and y is not None:
            return (x, y) if x != y else (x,)
        elif named and len(others) == 1:
            return (x or others[0], y or others[0])
        elif x is not None and not others:
            return (x,)
        elif not named and len(vectors) in (1, 2):
            return tuple(vectors)
        return None

    def refuse(self, where: str) -> None:
        """Refuse column names for files without columns.

        Raises:
            InputError: ``where`` begins the message.
        """
        if named := [f"{name}_column" for name in ("x", "y", "id") if getattr(self, name)]:
            raise InputError(
                f"{where}: got {' and '.join(named)}, but arrays have no columns; leave them out"
            )


def is_negative(name: str) -> bool:
    """Return whether a column has the name of mined negatives: ``negative``, or ``negative_1`` and
    so on."""
    return re.fullmatch(r"negative(_[0-9]{1,9})?", name) is not None
