"""Finds the shards of each side in paths, folders and globs, in order."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from batchplan.data.formats import format_of
from batchplan.errors import InputError
from batchplan.files.inputs import (
    PathLike,
    has_input_suffix,
    listed,
    matches,
    suffixes,
)
from batchplan.files.reading import readable
from batchplan.files.remote import RemotePath, ShardPath, located
from batchplan.files.saved_data import saved_files


def find_shards(inputs: PathLike | Sequence[PathLike], side: str) -> list[ShardPath]:
    """Return the shards of a side, which error messages name.

    Arguments keep their order; files of a folder or glob come in natural order (2 before 10).

    Raises:
        InputError: a path is missing, unreadable, of an unknown kind or repeated, or the side or a
            folder mixes kinds.
        ResourceError: the system is out of file handles.
    """
    items = listed(inputs)
    if not items:
        raise InputError(f"{side}: got no path, expected at least one file, folder or glob")
    for item in items:
        if not isinstance(item, str | os.PathLike):
            raise InputError(
                f"{side}: got {type(item).__name__}, expected paths, or one array per side"
            )
    shards = find_files(items, side, suffixes(), _kind_of, located)
    format_of(shards[0])  # refuses a suffix that cannot be read
    return shards


def _kind_of(path: ShardPath) -> str:
    return path.suffix.lower() if has_input_suffix(path) else ""


def find_files(
    items: Sequence[PathLike],
    where: str,
    expected: str,
    kind_of: Callable[[Any], str],
    locate: Callable[[str], ShardPath],
) -> list[ShardPath]:
    """Return the files of paths, folders and globs; all are of one kind.

    Paths keep their order. A folder that `datasets` saved gives the files that its state names.
    Other folders and globs give their files of a known kind, in natural order (2 before 10).

    Args:
        items: what the user named.
        where: begins messages about all files.
        expected: the suffixes that can be read, for messages.
        kind_of: returns the kind of a file, "" for an unknown one.
        locate: returns the path of a name.

    Raises:
        InputError: a path is missing, unreadable or repeated, or there are several kinds.
        ResourceError: the system is out of file handles.
    """
    files: list[ShardPath] = []
    for item in items:
        with readable(os.fspath(item)):
            files += _expand(locate(os.fspath(item)), expected, kind_of)
    by_kind = {kind_of(path): path for path in files}
    if len(by_kind) > 1:
        examples = " and ".join(map(str, by_kind.values()))
        raise InputError(f"{where}: got both {examples}, expected files of one kind")
    seen: set[str] = set()
    for path in files:
        if (real := str(path.resolve())) in seen:
            raise InputError(
                f"{path}: is repeated for {where}, so its rows would count twice; give it once"
            )
        seen.add(real)
    return files


def _expand(path: ShardPath, expected: str, kind_of: Callable[[Any], str]) -> list[ShardPath]:
    entries: Iterable[ShardPath]
    if path.is_dir():
        if (saved := saved_files(path)) is not None:
            return [path / name for name in saved]
        entries = list(path.iterdir())
    elif path.exists():
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file, expected a {expected} file")
        return [path]
    elif glob.has_magic(path.path if isinstance(path, RemotePath) else str(path)):
        found = path.matches() if isinstance(path, RemotePath) else matches(str(path))
        entries = [entry for entry in found if not entry.is_dir()]
    else:
        raise InputError(f"{path}: no such file or folder; check the path")
    files = [one for one in entries if kind_of(one) and not one.name.startswith((".", "_"))]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: is not a regular file, expected a {expected} file")
    if not files:
        inner = sorted(entry.name for entry in entries if entry.is_dir())
        hint = f"; it has the folders {', '.join(inner[:5])}: name one" if inner else ""
        raise InputError(f"{path}: no {expected} file there{hint}; check the path")
    return sorted(files, key=natural_key)


def natural_key(path: ShardPath) -> tuple[list[list[str | int]], str]:
    """Sorts ``img_emb_2`` before ``img_emb_10``; ties such as 1 and 01 are decided by the path."""
    # Splitting by a group alternates text and digits, so equal types are always compared.
    parts = [re.split(r"([0-9]+)", part) for part in path.parts]
    return [[int(t) if i % 2 else t for i, t in enumerate(part)] for part in parts], str(path)
