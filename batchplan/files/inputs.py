"""What is read where the user names an input, so that no output overwrites or joins it.

An input is named by a file, a folder or a glob, and by any link to one. What counts is what it
stands for: the files themselves, and for a plan the metadata beside it.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.sidecar import sidecar_places

PathLike = str | os.PathLike[str]
# By suffix, the module whose FORMAT reads it, imported when it is used.
INPUT_FORMATS = {".npy": "batchplan.data.npy", ".parquet": "batchplan.data.parquet"}
LAYOUT = ("img_emb", "text_emb")  # as embedding-reader and clip-retrieval name them


def is_shard_name(path: Path) -> bool:
    """Of a known suffix, and not hidden or a marker such as _SUCCESS or _metadata."""
    return path.suffix.lower() in INPUT_FORMATS and not path.name.startswith((".", "_"))


def matches(pattern: str) -> list[Path]:
    """All that a glob stands for, in no order."""
    return [Path(match) for match in glob.glob(pattern, recursive=True)]


def is_glob(name: PathLike) -> bool:
    """Whether a name is a glob: it has such characters, and nothing is called like that."""
    return glob.has_magic(os.fspath(name)) and not os.path.lexists(name)


def files_behind(name: PathLike) -> Iterator[Path]:
    """The files that may be read where ``name`` is given: a file itself, or the shards of a folder
    or a glob. The name of a file that is missing is one too."""
    path = Path(name)
    if is_glob(name):
        yield from filter(is_shard_name, matches(os.fspath(name)))
    elif os.path.isdir(path):
        for folder in _folders(path):
            with suppress(OSError):  # who reads it tells
                yield from filter(is_shard_name, folder.iterdir())
    else:
        yield path


def check_kept(output: Path, inputs: Sequence[PathLike]) -> None:
    """Require that a file written at ``output`` leaves all inputs as they are.

    Args:
        output: a path that need not exist; if it is a link, what it links to is written.
        inputs: files, folders and globs, as the user named them.

    Raises:
        InputError: it is one of the files read, whatever it is called, or the metadata of a plan
            that is read; or it would be read itself the next time, in a folder or by a glob.
    """
    real = _real(output)
    places = {real, _real(output.parent) / output.name}
    there = _stat(output)
    for name in inputs:
        if _joins(name, places) or any(_same(file, real, there) for file in _protected(name)):
            raise InputError(f"{output}: would overwrite or join the input {name}; choose another")


def _protected(name: PathLike) -> Iterator[Path]:
    for file in files_behind(name):
        yield file
        yield from sidecar_places(file)


def _stat(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None


def _same(file: Path, output: Path, there: os.stat_result | None) -> bool:
    """Whether a file is the output; of two that are not there yet, whether they would be one."""
    found = _stat(file)
    if found is None or there is None:
        alike = found is there and (file.name == output.name or os.path.islink(file))
        return alike and _real(file) == output
    return os.path.samestat(found, there)


def _joins(name: PathLike, places: set[Path]) -> bool:
    """Whether a file at these places would be among those that ``name`` stands for."""
    if is_glob(name):
        return any(is_shard_name(place) and _is_match(place, os.fspath(name)) for place in places)
    folders = _folders(Path(name)) if os.path.isdir(name) else ()
    closed = {_real(folder) for folder in folders}
    return any(not closed.isdisjoint((place, *place.parents)) for place in places)


def _is_match(place: Path, pattern: str) -> bool:
    """Whether a glob would find a file at this place, which is an absolute path without links in
    its folder."""
    head, tail = os.path.split(pattern)
    if tail != "**" and not fnmatch.fnmatch(place.name, tail):
        return False
    folders = [Path(head)] if not glob.has_magic(head) else matches(head)
    real = (_real(folder) for folder in folders if os.path.isdir(folder))
    return any(
        folder in place.parents if tail == "**" else folder == place.parent for folder in real
    )


def _real(path: Path) -> Path:
    """The path without links."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:  # relative, and the working directory is gone
        return path


def _folders(folder: Path) -> list[Path]:
    """A folder, and those of both sides where it has them."""
    return [folder, *(inner for side in LAYOUT if os.path.isdir(inner := folder / side))]
