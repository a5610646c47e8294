"""From what the user typed to an ordered list of shard files a side."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from batchplan.errors import InputError, ResourceError

PathLike = str | os.PathLike[str]
SUFFIXES = (".npy", ".parquet")
_LAYOUT = ("img_emb", "text_emb")  # as embedding-reader and clip-retrieval name them


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turn what the system says of ``path`` into an InputError (or a ResourceError)."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file or folder; check the path") from error
    except PermissionError as error:
        raise InputError(f"{path}: permission denied; make it readable for this user") from error
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ResourceError(
                f"{path}: too many open files, and every NPY shard is kept open; "
                "raise the limit with `ulimit -n`, or merge shards"
            ) from error
        if error.errno == errno.ENOMEM:
            raise ResourceError(f"{path}: cannot be mapped, not enough memory") from error
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def find_shards(
    paths: PathLike | Sequence[PathLike], pair: PathLike | Sequence[PathLike] | None = None
) -> tuple[list[Path], list[Path]]:
    """The shard files of x and those of y; the latter is empty where x's files may hold both.

    Arguments keep their order; a folder or glob gives its files in natural order (2 before 10).

    Raises:
        InputError: a path is missing, unreadable, of an unknown kind, given twice, or a side or
            folder mixes kinds.
        ResourceError: the system is out of file handles.
    """
    x, y = _side(paths, "x")
    if pair is not None:
        if y:
            raise InputError(
                f"{_listed(paths)}: holds {_LAYOUT[0]} and {_LAYOUT[1]}, both sides, and a pair "
                "was given too; drop the pair, or name one of the folders"
            )
        y, second = _side(pair, "y")
        if second:
            raise InputError(
                f"{_listed(pair)}: holds {_LAYOUT[0]} and {_LAYOUT[1]}, both sides, expected the "
                "pair's side only; name one of the folders"
            )
    return x, y


def natural_key(path: Path) -> tuple[list[list[str | int]], str]:
    """Sorts ``img_emb_2`` before ``img_emb_10``; the name itself decides between 1 and 01."""
    # Splitting by a group alternates text and digits, so like is always compared with like.
    parts = [re.split(r"([0-9]+)", part) for part in path.parts]
    return [[int(t) if i % 2 else t for i, t in enumerate(part)] for part in parts], str(path)


def _side(given: PathLike | Sequence[PathLike], side: str) -> tuple[list[Path], list[Path]]:
    """The files of one side, and those of the other where a layout names it."""
    items = [given] if isinstance(given, str | os.PathLike) else list(given)
    if not items:
        raise InputError(f"{side}: got no path, expected at least one file, folder or glob")
    found: list[tuple[list[Path], list[Path]]] = []
    for item in items:
        if not isinstance(item, str | os.PathLike):
            raise InputError(
                f"{side}: got {type(item).__name__}, expected paths or one array a side"
            )
        with readable(os.fspath(item)):
            found.append(_expand(os.fspath(item)))
    first, second = (
        [path for files in part for path in files] for part in zip(*found, strict=True)
    )
    if second and not all(files for _, files in found):
        raise InputError(
            f"{_listed(given)}: some folders hold {_LAYOUT[0]} and {_LAYOUT[1]} and some inputs do "
            "not; give inputs of one layout"
        )
    for files in (first, second):
        _check_alike(files, side)
    return first, second


def _expand(text: str) -> tuple[list[Path], list[Path]]:
    path = Path(text)
    if path.is_dir():
        if path.suffix.lower() == ".npy":
            raise InputError(f"{path}: is a folder, expected a .npy file; rename the folder")
        return _layout(path) or (_folder(path), [])
    if path.exists():
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(
                f"{path}: got suffix {path.suffix or '(none)'}, expected .npy or .parquet"
            )
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file, expected a .npy or .parquet file")
        return [path], []
    if glob.has_magic(text):
        return _glob(text), []
    raise InputError(f"{path}: no such file or folder; check the path")


def _glob(pattern: str) -> list[Path]:
    matches = [Path(match) for match in glob.glob(pattern, recursive=True)]
    shards = [path for path in matches if _is_shard(path) and path.is_file()]
    if not shards:
        seen = f"matches {len(matches)} names but no .npy or .parquet file" if matches else ""
        raise InputError(f"{pattern}: {seen or 'no file matches this pattern'}; check the pattern")
    return sorted(shards, key=natural_key)


def _folder(folder: Path) -> list[Path]:
    shards = sorted(filter(_is_shard, folder.iterdir()), key=natural_key)
    if not shards:
        inner = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        hint = f"; it holds the folders {', '.join(inner[:5])}: name one" if inner else ""
        raise InputError(f"{folder}: no .npy or .parquet files in this folder{hint}")
    for shard in shards:
        if not shard.is_file():
            raise InputError(f"{shard}: is not a regular file, expected a shard; move it away")
    _check_alike(shards, str(folder))
    return shards


def _layout(folder: Path) -> tuple[list[Path], list[Path]] | None:
    """Both sides of a folder that embedding-reader or clip-retrieval wrote, None of any other."""
    images, texts = (folder / name for name in _LAYOUT)
    if not (images.is_dir() and texts.is_dir()):
        return None
    if any(map(_is_shard, folder.iterdir())):
        raise InputError(
            f"{folder}: holds shards of its own and the folders {_LAYOUT[0]} and {_LAYOUT[1]}; "
            "name the folders, or move the shards away"
        )
    x, y = _folder(images), _folder(texts)
    numbers = [[re.findall(r"[0-9]+", path.stem)[-1:] for path in files] for files in (x, y)]
    if numbers[0] != numbers[1]:
        raise InputError(
            f"{folder}: the shard numbers of {_LAYOUT[0]} ({len(x)} files) and {_LAYOUT[1]} "
            f"({len(y)} files) differ, so rows would be paired wrongly; restore the missing shards"
        )
    return x, y


def _is_shard(path: Path) -> bool:
    """Of a known suffix, and not hidden, a marker such as _SUCCESS or _metadata, or a plan, which
    has its metadata beside it."""
    return (
        path.suffix.lower() in SUFFIXES
        and not path.name.startswith((".", "_"))
        and not path.with_name(f"{path.name}.json").exists()
    )


def _check_alike(files: list[Path], where: str) -> None:
    by_suffix = {path.suffix.lower(): path for path in files}
    if len(by_suffix) > 1:
        examples = " and ".join(str(path) for path in by_suffix.values())
        raise InputError(f"{where}: got both {examples}, expected files of one kind")
    seen: set[Path] = set()
    for path in files:
        if (real := path.resolve()) in seen:
            raise InputError(f"{path}: given twice for {where}; its rows would be counted twice")
        seen.add(real)


def _listed(given: PathLike | Sequence[PathLike]) -> str:
    items = [given] if isinstance(given, str | os.PathLike) else given
    return ", ".join(os.fspath(item) for item in items)
