"""One matrix that may have been meant as pairs: a warning, or a refusal if it has two sides."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from batchplan.data.formats.arrays import ArraySource
from batchplan.data.origin import Origin
from batchplan.errors import InputError
from batchplan.files.inputs import listed

if TYPE_CHECKING:  # arrays need no Arrow
    from batchplan.data.formats.tables import TableSource

_MEND = "name the files of the other side as the pair (--pair), or pass single=True (--single)"
_DIGITS = re.compile("([0-9]+)")
_PAIRS = [{"x", "y"}, {"anchor", "positive"}, {"query", "document"}, {"queries", "documents"}]


def alone(
    paths: Any, origin: Origin, sources: Sequence["ArraySource | TableSource"], single: bool
) -> str:
    """Return the warning if there is one matrix that may have been meant as pairs; else an empty
    text.

    Raises:
        InputError: two sides with ``single``; or several paths of one matrix without, or files with
            several stems, equally many of each and with equally many rows, or named as two sides.
    """
    named, wanted = listed(paths), origin.wanted
    where = ", ".join(os.fspath(path) for path in named[:3]) + ", ..." * (len(named) > 3)
    paired = any("y" in source.sides for source in sources)
    if paired and single:
        raise InputError(
            f"{where}: got two sides of pairs, expected one matrix, since single is set; drop "
            "single=True (--single), or name one column as x and as y"
        )
    if paired or single or (wanted.x and wanted.x == wanted.y):
        return ""
    source, (_, _, dim) = sources[0], sources[0].shapes[0]
    if sides := _sides(source.counts):
        one, other, *more = map(_in_shell, sides)
        kind, name = "two sides", f"both: {one} --pair {other} (pair in Python)"
        if more:
            kind, name = (
                "sides",
                "one, the other side as the pair (--pair) and mined negatives (--negatives)",
            )
        raise InputError(
            f"{' and '.join([one, other, *more][:4]):.200}: got {_counts(sides, source.counts)}, "
            f"which look like the {kind} of pairs, in one matrix; "
            f"name {name}, or pass single=True (--single) if they are shards of one matrix"
        )
    if len(named) > 1:
        raise InputError(
            f"{where}: got {len(named)} paths of one matrix, whose rows would be their own "
            f"positives, expected pairs; {_MEND} if they are shards of one matrix"
        )
    files = f" of {len(origin.x)} files" * (len(origin.x) > 1)
    held = f" ({source.column}{files})" if source.column else files
    return (
        f"{where}: one matrix of {source.rows:,} x {dim}{held}, so each row is its own positive; "
        f"{_MEND}"
    )


def _sides(rows: dict[str, int]) -> list[list[str]] | None:
    """Return the files of each side, told by names that differ in more than digits; else None.

    Args:
        rows: of each file, by its name.
    """
    stems: dict[str, list[str]] = {}
    for name in rows:
        stems.setdefault(_DIGITS.sub("", name), []).append(name)
    sides = list(stems.values())
    sizes = {(len(names), sum(rows[name] for name in names)) for names in sides}
    if len(sides) > 1 and (len(sizes) == 1 or {PurePath(name).stem for name in rows} in _PAIRS):
        return sides
    return None


def _counts(sides: Sequence[Sequence[str]], rows: dict[str, int]) -> str:
    counts = [sum(rows[name] for name in names) for names in sides]
    if len({*counts}) == 1:
        return f"{counts[0]:,} rows each"
    return f"{' and '.join(f'{count:,}' for count in counts)} rows"


def _in_shell(names: Sequence[str]) -> str:
    """Return a file for a shell, or the glob of files that differ in their digits."""
    parts = zip(*(_DIGITS.split(name) for name in names), strict=False)
    same = (one[0] if len({*one}) == 1 else "[0-9]*" for one in parts)
    return shlex.quote("".join(same))
