"""Finds the shards of each side in paths, folders and globs, in order."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from batchplan.data.formats import format_of, has_columns
from batchplan.errors import InputError
from batchplan.files.inputs import (
    LAYOUT,
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
from batchplan.files.sidecar import has_plan_metadata
from batchplan.text import without_secrets


def find_shards(
    paths: PathLike | Sequence[PathLike],
    pair: PathLike | Sequence[PathLike] | None = None,
    passed: list[Path] | None = None,
) -> tuple[list[ShardPath], list[ShardPath]]:
    """Find the shards of x and of y. There are none of y if the files of x may have both sides.

    Arguments keep their order; files of a folder or glob come in natural order (2 before 10). Plans
    in a folder or glob are skipped and added to ``passed``.

    Raises:
        InputError: a path is missing, unreadable, of an unknown kind or repeated, or a side or
            folder mixes kinds.
        ResourceError: the system is out of file handles.
    """
    passed = [] if passed is None else passed
    x, y = _side(paths, "x", passed)
    if pair is None:
        return x, y
    if y:
        raise InputError(
            f"{_listed(paths)}: holds {LAYOUT[0]} and {LAYOUT[1]}, both sides, but a pair is set "
            "too; drop the pair, or name one of the folders"
        )
    return x, find_side(pair, "y", passed)


def find_side(
    paths: PathLike | Sequence[PathLike], side: str, passed: list[Path]
) -> list[ShardPath]:
    """The shards of ``y`` or of ``negatives``; arguments and errors as `find_shards`."""
    files, others = _side(paths, side, passed)
    if others:
        raise InputError(
            f"{_listed(paths)}: holds {LAYOUT[0]} and {LAYOUT[1]}, both sides, expected only "
            f"{side}; name one of the folders"
        )
    return files


def natural_key(path: ShardPath) -> tuple[list[list[str | int]], str]:
    """Sorts ``img_emb_2`` before ``img_emb_10``; ties such as 1 and 01 are decided by the path."""
    # Splitting by a group alternates text and digits, so equal types are always compared.
    parts = [re.split(r"([0-9]+)", part) for part in path.parts]
    return [[int(t) if i % 2 else t for i, t in enumerate(part)] for part in parts], str(path)


def _side(
    inputs: PathLike | Sequence[PathLike], side: str, passed: list[Path]
) -> tuple[list[ShardPath], list[ShardPath]]:
    """The files of a side, and those of the other side if folders of `LAYOUT` hold both."""
    items = listed(inputs)
    if not items:
        raise InputError(f"{side}: got no path, expected at least one file, folder or glob")
    sides: list[tuple[list[ShardPath], list[ShardPath]]] = []
    for item in items:
        if not isinstance(item, str | os.PathLike):
            raise InputError(
                f"{side}: got {type(item).__name__}, expected paths, or one array per side"
            )
        with readable(without_secrets(os.fspath(item))):
            sides.append(_expand(os.fspath(item), passed))
    first = [path for files, _ in sides for path in files]
    second = [path for _, files in sides for path in files]
    if second and not all(files for _, files in sides):
        raise InputError(
            f"{_listed(inputs)}: some inputs hold {LAYOUT[0]} and {LAYOUT[1]} and others do not; "
            "give inputs of one layout"
        )
    for files in (first, second):
        check_alike(files, side)
    return first, second


def _expand(text: str, passed: list[Path]) -> tuple[list[ShardPath], list[ShardPath]]:
    path = located(text)
    if path.is_dir():
        if has_input_suffix(path) and not has_columns(path):  # tables may be folders
            raise InputError(
                f"{path}: is a folder, expected a {path.suffix} file; rename the folder"
            )
        return _layout(path, passed) or (_folder(path, passed), [])
    if path.exists():
        format_of(path)
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file, expected a {suffixes()} file")
        return [path], []
    if glob.has_magic(path.path if isinstance(path, RemotePath) else str(path)):
        return _glob(path, passed), []
    raise InputError(f"{path}: no such file or folder; check the path")


def _glob(pattern: ShardPath, passed: list[Path]) -> list[ShardPath]:
    paths = pattern.matches() if isinstance(pattern, RemotePath) else matches(str(pattern))
    shards, plans = _shards(path for path in paths if path.is_file())
    if not shards:
        got = f"matches {len(paths)} names but no {suffixes()} file" if paths else "no file matches"
        got = f"matches no embeddings, but plans such as {plans[0]}" if plans else got
        raise InputError(f"{pattern}: {got}; check the pattern")
    passed += plans
    return shards


def _folder(folder: ShardPath, passed: list[Path]) -> list[ShardPath]:
    if (saved := saved_files(folder)) is not None:
        return [folder / name for name in saved]
    shards, plans = _shards(folder.iterdir())
    if not shards:
        inner = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        hint = f"; it holds the folders {', '.join(inner[:5])}: name one" if inner else ""
        hint = f", but plans such as {plans[0].name}" if plans else hint
        raise InputError(f"{folder}: no {suffixes()} files in this folder{hint}")
    for shard in shards:
        if not shard.is_file():
            raise InputError(f"{shard}: is not a regular file, expected a shard; move it away")
    check_alike(shards, str(folder))
    passed += plans
    return shards


def _shards(paths: Iterable[ShardPath]) -> tuple[list[ShardPath], list[Path]]:
    """The shards among these paths in natural order, and the plans."""
    named = sorted(filter(is_shard_name, paths), key=natural_key)
    plans = [path for path in named if isinstance(path, Path) and has_plan_metadata(path)]
    return [path for path in named if path not in plans], plans


def _layout(
    folder: ShardPath, passed: list[Path]
) -> tuple[list[ShardPath], list[ShardPath]] | None:
    """Both sides of a folder of embedding-reader or clip-retrieval; None for other folders."""
    images, texts = (folder / name for name in LAYOUT)
    if not (images.is_dir() and texts.is_dir()):
        return None
    if _shards(folder.iterdir())[0]:
        raise InputError(
            f"{folder}: holds shards of its own and the folders {LAYOUT[0]} and {LAYOUT[1]}; "
            "name the folders, or move the shards away"
        )
    x, y = _folder(images, passed), _folder(texts, passed)
    numbers = [[re.findall(r"[0-9]+", path.stem)[-1:] for path in files] for files in (x, y)]
    if numbers[0] != numbers[1]:
        raise InputError(
            f"{folder}: the shard numbers of {LAYOUT[0]} ({len(x)} files) and {LAYOUT[1]} "
            f"({len(y)} files) differ, so rows would be paired wrongly; restore the missing shards"
        )
    return x, y


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


def _listed(inputs: PathLike | Sequence[PathLike]) -> str:
    items = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    return ", ".join(without_secrets(os.fspath(item)) for item in items)
