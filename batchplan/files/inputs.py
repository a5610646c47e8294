"""Finds the files that an input stands for, so that no output overwrites or joins them.

An input is a file, a folder or a glob, or a link to one. It stands for its files and for the
metadata next to a plan.
"""

import fnmatch
import glob
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from batchplan.errors import InputError
from batchplan.files.remote import ShardPath, local_path
from batchplan.files.sidecar import sidecar_places

PathLike = str | os.PathLike[str]
# By suffix, the module with the FORMAT that reads the file; imported on use.
INPUT_FORMATS = {
    ".npy": "batchplan.data.formats.npy",
    ".parquet": "batchplan.data.formats.parquet",
    ".arrow": "batchplan.data.formats.arrow",
    ".safetensors": "batchplan.data.formats.safetensors",
    ".fbin": "batchplan.data.formats.fbin",
    ".f16bin": "batchplan.data.formats.fbin",
    ".i8bin": "batchplan.data.formats.fbin",
    ".npz": "batchplan.data.formats.npz",
    ".feather": "batchplan.data.formats.arrow",
    ".fvecs": "batchplan.data.formats.fvecs",
}


def listed(paths: PathLike | Sequence[PathLike] | Any, name: str = "paths") -> list[PathLike]:
    """Return a path, or several, as a list; ``name`` begins messages.

    Raises:
        InputError: they are something else.
    """
    items: list[Any] = [paths]
    if isinstance(paths, Iterable) and not isinstance(paths, str | os.PathLike):
        items = list(paths)
    for item in items:
        if not isinstance(item, str | os.PathLike):
            kind = type(item).__name__
            raise InputError(f"{name}: got {kind}, expected paths, or one array per side")
    return items


def has_input_suffix(path: ShardPath) -> bool:
    """Return whether the suffix is one of embeddings."""
    return path.suffix.lower() in INPUT_FORMATS


def suffixes() -> str:
    """Return the suffixes of embeddings, for messages."""
    *most, last = INPUT_FORMATS
    return f"{', '.join(most)} or {last}"


def is_shard_name(path: ShardPath) -> bool:
    """Return whether the suffix is known, and the file neither hidden nor a marker such as
    _SUCCESS."""
    return has_input_suffix(path) and not path.name.startswith((".", "_"))


def matches(pattern: str) -> list[Path]:
    """Return all matches of a glob, in no order."""
    return [Path(match) for match in glob.glob(pattern, recursive=True)]


def is_glob(name: PathLike) -> bool:
    """Return whether a name is a glob: it has magic characters, and no file has that name."""
    return glob.has_magic(os.fspath(name)) and not os.path.lexists(name)


def check_not_input(output: Path, inputs: Sequence[PathLike]) -> None:
    """Require that writing ``output`` changes no input.

    Args:
        output: a path that need not exist; a link stands for its target.
        inputs: files, folders, globs and URLs, as the user named them.

    Raises:
        InputError: the output is an input, under any name, or the metadata of one, or would become
            part of a folder or glob among the inputs.
    """
    real = Path(os.path.realpath(output))
    for name in filter(None, map(local_path, inputs)):
        with suppress(FileNotFoundError):  # a relative input, and the working directory is gone
            if _overwrites(real, name):
                raise InputError(
                    f"{output}: would overwrite or join the input {name}; choose another"
                )


def _overwrites(real: Path, name: Path) -> bool:
    """Return whether a file at ``real`` would be, or join, the files of an input."""
    files = [name]
    if is_glob(name):
        files = list(filter(is_shard_name, matches(str(name))))
        folders = real.parents if "**" in str(name) else [real.parent]
        named = is_shard_name(real) and fnmatch.fnmatch(real.name, name.name)
        if named and any(Path(os.path.realpath(file.parent)) in folders for file in files):
            return True
    elif Path(os.path.realpath(name)) in (real, *real.parents):
        return True
    elif os.path.isdir(name):
        with suppress(OSError):  # reading it will fail with a message
            files = list(filter(is_shard_name, name.iterdir()))
    places = (place for file in files for place in (file, *sidecar_places(file)))
    return str(real) in map(os.path.realpath, places)
