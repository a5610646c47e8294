"""The columns that the user named, and how they choose among the vectors of a file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from batchplan.errors import InputError
from batchplan.text import check_urls

_VECTORS = "vector columns (lists of float16, float32 or int8) or matrices of these"


@dataclass(frozen=True)
class Wanted:
    """The names of columns, None if not named; an empty ``id`` reads no ids.

    ``negatives`` says whether to read the columns that `is_negative` finds as mined negatives.
    """

    x: str | None = None
    y: str | None = None
    id: str | None = None
    negatives: bool = False

    def choose(
        self,
        vectors: Sequence[str],
        sides: Sequence[str],
        where: str,
        held: str,
        pairs: Sequence[tuple[str, str]] = (),
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the vectors of each side (one name if there is only one matrix), and of
        mined negatives in the order of their numbers.

        Args:
            vectors: the names of all vectors in a file.
            sides: ``("x", "y")`` if the file may have both, else the one it has; ``("negatives",)``
                if it has only negatives.
            where: the path of the file, for messages.
            held: says what the file has, for messages.
            pairs: the names that say which side they are, if the order of vectors means nothing.

        Raises:
            InputError: there are no vectors of a name, or the choice is ambiguous.
        """
        named = [name for name in (self.x, self.y) if name is not None]
        check_urls(named)
        for name in named:
            if name not in vectors:
                raise InputError(f"{where}: {name!r} is none of the {_VECTORS}; {held}")
        mined = negatives_of(name for name in vectors if name not in named)
        others = [name for name in vectors if name not in mined]
        if not (self.negatives or "negatives" in sides):
            others, mined = others or list(vectors), []
        found = others
        if pairs and len(sides) == 2 and not named:
            alone = others if len(others) == 1 else []
            found = next((list(pair) for pair in pairs if set(pair) <= set(others)), alone)
        if sides == ("negatives",) and (mined or len(others) == 1):
            return (), tuple(mined or others)
        if (chosen := self._of_sides(found, sides)) is not None:
            return chosen, tuple(mined)
        names = " and ".join(f"{side}_column (--{side}-column)" for side in sides)
        raise InputError(
            f"{where}: got {len(others)} {_VECTORS}, expected {self._expected(sides, pairs)}; "
            f"{held}" + f"; choose with {names}" * (len(others) > 1 and sides != ("negatives",))
        )

    def _expected(self, sides: Sequence[str], pairs: Sequence[tuple[str, str]]) -> str:
        if sides == ("negatives",):
            return "one, or negative_1, negative_2, ..."
        if len(sides) == 1:
            return f"1 for side {sides[0]}" + " because a pair is set" * (sides[0] == "x")
        if self.y is not None:
            return "2 because y_column is set"
        return " or ".join(["1", *map(" and ".join, pairs)]) if pairs else "1 or 2"

    def _of_sides(self, vectors: Sequence[str], sides: Sequence[str]) -> tuple[str, ...] | None:
        """Return the vectors of each side; None if unclear."""
        named = [name for name in (self.x, self.y) if name is not None]
        others = [name for name in vectors if name not in named]
        if len(sides) == 1:
            found = named[:1] or others
            return tuple(found) if len(found) == 1 else None
        if len(named) < 2:
            named = [*others, *named] if self.x is None else [*named, *others]
        found = list(dict.fromkeys(named))  # one name twice means one matrix
        least = 2 if self.x is None and self.y is not None else 1
        return tuple(found) if least <= len(found) <= 2 else None

    def vectors(self, dtypes: Mapping[str, Any]) -> list[str]:
        """Return the names of what may be vectors, by their dtypes: int8 only if it is named, or if
        there are no floats."""
        floats = any(dtype.itemsize > 1 for dtype in dtypes.values())
        return [
            name
            for name, dtype in dtypes.items()
            if dtype.itemsize > 1 or not floats or name in (self.x, self.y)
        ]

    def refuse(self, where: str) -> None:
        """Refuse column names for files without columns.

        Raises:
            InputError: ``where`` begins the message.
        """
        if named := [f"{name}_column" for name in ("x", "y", "id") if getattr(self, name)]:
            raise InputError(
                f"{where}: got {' and '.join(named)}, but arrays have no columns; leave them out"
            )


def shown(kind: str, names: Sequence[str]) -> str:
    """Return a text that lists names of columns or tensors, up to some 240 characters."""
    count = max(1, sum(length < 240 for length in accumulate(len(name) + 2 for name in names)))
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return f"the {kind} are {', '.join(names[:count])}{more}"


def negatives_of(names: Iterable[str]) -> list[str]:
    """Return the columns of mined negatives, in the order of their numbers."""
    found = filter(is_negative, names)
    return sorted(found, key=lambda name: int(name.partition("_")[2] or 0))


def is_negative(name: str) -> bool:
    """Return whether a column has the name of mined negatives: ``negative``, or ``negative_1`` and
    so on."""
    return re.fullmatch(r"negative(_[0-9]{1,9})?", name) is not None
