"""Finds the shards of each side in paths, folders and globs, in order."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from batchplan.data.formats import format_of, has_columns
from batchplan.errors import InputError
from batchplan.files.inputs import (
    PathLike,
    has_input_suffix,
    is_shard_name,
    listed,
    matches,
    suffixes,
)
from batchplan.files.reading import readable
from batchplan.files.remote import RemotePath, ShardPath, located
from batchplan.files.saved_data import saved_files
from batchplan.text import without_secrets


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
    shards: list[ShardPath] = []
    for item in items:
        if not isinstance(item, str | os.PathLike):
            raise InputError(
                f"{side}: got {type(item).__name__}, expected paths, or one array per side"
            )
        with readable(without_secrets(os.fspath(item))):
            shards += _expand(os.fspath(item))
    check_alike(shards, side)
    return shards


def natural_key(path: ShardPath) -> tuple[list[list[str | int]], str]:
    """Sorts ``img_emb_2`` before ``img_emb_10``; ties such as 1 and 01 are decided by the path."""
    # Splitting by a group alternates text and digits, so equal types are always compared.
    parts = [re.split(r"([0-9]+)", part) for part in path.parts]
    return [[int(t) if i % 2 else t for i, t in enumerate(part)] for part in parts], str(path)


def _expand(text: str) -> list[ShardPath]:
    path = located(text)
    if path.is_dir():
        if has_input_suffix(path) and not has_columns(path):  # tables may be folders
            raise InputError(
                f"{path}: is a folder, expected a {path.suffix} file; rename the folder"
            )
        return _folder(path)
    if path.exists():
        format_of(path)
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file, expected a {suffixes()} file")
        return [path]
    if glob.has_magic(path.path if isinstance(path, RemotePath) else str(path)):
        return _glob(path)
    raise InputError(f"{path}: no such file or folder; check the path")


def _glob(pattern: ShardPath) -> list[ShardPath]:
    paths = pattern.matches() if isinstance(pattern, RemotePath) else matches(str(pattern))
    shards = _shards(path for path in paths if path.is_file())
    if not shards:
        got = f"matches {len(paths)} names but no {suffixes()} file" if paths else "no file matches"
        raise InputError(f"{pattern}: {got}; check the pattern")
    return shards


def _folder(folder: ShardPath) -> list[ShardPath]:
    if (saved := saved_files(folder)) is not None:
        return [folder / name for name in saved]
    shards = _shards(folder.iterdir())
    if not shards:
        inner = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        hint = f"; it has the folders {', '.join(inner[:5])}: name one" if inner else ""
        raise InputError(f"{folder}: no {suffixes()} files in this folder{hint}")
    for shard in shards:
        if not shard.is_file():
            raise InputError(f"{shard}: is not a regular file, expected a shard; move it away")
    check_alike(shards, str(folder))
    return shards


def _shards(paths: Iterable[ShardPath]) -> list[ShardPath]:
    """Return the shards among these paths, in natural order."""
    return sorted(filter(is_shard_name, paths), key=natural_key)


def check_alike(
    files: Sequence[ShardPath],
    where: str,
    kind_of: Callable[[Any], str] = lambda path: path.suffix.lower(),
) -> None:
    """Refuse files of several kinds, or a file that is given twice; ``where`` begins messages."""
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
