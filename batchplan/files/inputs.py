"""Which files an input stands for, so that no output overwrites or joins them.

An input is a file, a folder or a glob, or a link to one. It stands for the files themselves, and
for the metadata beside a plan.
"""

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


def has_input_suffix(path: Path) -> bool:
    """Whether embeddings may have such a suffix."""
    return path.suffix.lower() in INPUT_FORMATS


def suffixes() -> str:
    """The suffixes of embeddings, for messages."""
    return " or ".join(INPUT_FORMATS)


def is_shard_name(path: Path) -> bool:
    """Of a known suffix, and not hidden or a marker such as _SUCCESS or _metadata."""
    return has_input_suffix(path) and not path.name.startswith((".", "_"))


def matches(pattern: str) -> list[Path]:
    """All matches of a glob, in no order."""
    return [Path(match) for match in glob.glob(pattern, recursive=True)]


def is_glob(name: PathLike) -> bool:
    """Whether a name is a glob: it has magic characters, and no file has that name."""
    return glob.has_magic(os.fspath(name)) and not os.path.lexists(name)


def files_behind(name: PathLike) -> Iterator[Path]:
    """The files that ``name`` stands for: itself, even if it is missing, or the shards of a folder
    or a glob."""
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
    """Require that writing ``output`` changes no input.

    Args:
        output: a path that need not exist; if it is a link, what it links to is written.
        inputs: files, folders and globs, as the user named them.

    Raises:
        InputError: it is an input, under any name, or the metadata of one; or a folder or glob
            among the inputs would include it.
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
    """Whether a file is the output, or would be if neither exists yet."""
    found = _stat(file)
    if found is None or there is None:
        alike = found is there and (file.name == output.name or os.path.islink(file))
        return alike and _real(file) == output
    return os.path.samestat(found, there)


def _joins(name: PathLike, places: set[Path]) -> bool:
    """Whether a file at one of these places would be among those that ``name`` stands for."""
    if is_glob(name):
        return any(is_shard_name(place) and _is_match(place, os.fspath(name)) for place in places)
    folders = _folders(Path(name)) if os.path.isdir(name) else ()
    closed = {_real(folder) for folder in folders}
    return any(not closed.isdisjoint((place, *place.parents)) for place in places)


def _is_match(place: Path, pattern: str) -> bool:
    """Whether a glob would find a file at this absolute path, whose folder has no links."""
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
    """A folder, and its folders of both sides if it has them."""
    return [folder, *(inner for side in LAYOUT if os.path.isdir(inner := folder / side))]
