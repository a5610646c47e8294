"""The splits of data sets (train, test, ...) that files belong to, by the rules of `datasets`."""

import re
from collections.abc import Sequence

from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

_WORD = re.compile(
    r"(?<![^-._ 0-9/])(?:(?P<train>train(?:ing)?)|(?P<validation>validation|valid|val|dev)|"
    r"(?P<test>test(?:ing)?|eval(?:uation)?))(?=[-._ 0-9/])"
)
_SHARD = re.compile(r"^data/(\w+(?:\.\w+)*)-[0-9]{5}-of-[0-9]{5}")


def refuse_splits(files: Sequence[ShardPath], begin: int, where: str) -> None:
    """Refuse the files of a folder or glob if they belong to several splits.

    Args:
        files: at least one.
        begin: the parts of each path from this one on name its split.
        where: begins the message.

    Raises:
        InputError: there are several; names them, and what to give for the largest.
    """
    splits: dict[str, list[ShardPath]] = {}
    for file in files:
        words = dict.fromkeys(
            str(w.lastgroup) for w in _WORD.finditer("/".join(file.parts[begin:]))
        )
        if split := "-".join(words or _SHARD.findall("/".join(file.parts[-2:]))):
            splits.setdefault(split, []).append(file)
    if len(splits) > 1:
        name = max(splits, key=lambda split: len(splits[split]))
        raise InputError(
            f"{where}: got files of the splits {', '.join(list(splits)[:5])}, whose rows would be "
            f"joined; name the files of one, such as {_name_of(splits[name], files)} for {name}"
        )


def _name_of(own: Sequence[ShardPath], files: Sequence[ShardPath]) -> str:
    """Return the path or the glob of some of the files."""
    first, last = str(own[0]), str(own[-1])  # sorted, so that all share what these two share
    shared = [a == b for a, b in zip(first, last, strict=False)]
    prefix = first[: [*shared, False].index(False)].rstrip("0123456789")
    alone = sum(str(file).startswith(prefix) for file in files) == len(own)
    if len(own) == 1 or not alone:
        return " ".join(str(file) for file in own[:2]) + " ..." * (len(own) > 2)
    inner = first[len(prefix) :].split("/")
    return f"'{prefix}{'/'.join('*' * len(inner))}{own[0].suffix}'"
