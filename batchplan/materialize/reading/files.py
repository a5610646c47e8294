"""From paths, folders and globs to the files of a data set, in order."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from batchplan.data.shards import natural_key
from batchplan.errors import InputError
from batchplan.files.inputs import PathLike, is_glob, matches
from batchplan.files.reading import readable
from batchplan.files.remote import no_url
from batchplan.files.saved_data import saved_files

_ALIASES = {".json": ".jsonl", ".ndjson": ".jsonl", ".feather": ".arrow"}


def find_files(data: Sequence[PathLike], suffixes: Sequence[str]) -> tuple[list[Path], str]:
    """The files, and the suffix that says how to read all of them.

    Paths keep their order. A folder that `datasets` saved gives the files that it names; any other
    folder, and a glob, its files of a known suffix in natural order (2 before 10).

    Args:
        data: files, folders and globs.
        suffixes: those that can be read.

    Raises:
        InputError: a path is missing, of an unknown suffix or given twice; or they are of several
            kinds.
    """
    paths: list[Path] = []
    for name in data:
        with readable(os.fspath(name)):
            paths += _expanded(name, suffixes)
    kinds = {kind: path for path in reversed(paths) if (kind := kind_of(path))}
    if len(kinds) > 1:
        some = " and ".join(str(path) for path in kinds.values())
        raise InputError(f"data: got both {some}, expected files of one kind; name those to read")
    seen: set[Path] = set()
    for path in paths:
        if (real := path.resolve()) in seen:
            raise InputError(f"{path}: given twice; its rows would be counted twice")
        seen.add(real)
    return paths, next(iter(kinds))


def kind_of(path: Path) -> str:
    """The suffix of a file, or the usual spelling of it."""
    suffix = path.suffix.lower()
    return _ALIASES.get(suffix, suffix)


def _expanded(name: PathLike, suffixes: Sequence[str]) -> list[Path]:
    path = no_url(name)
    known = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
    if path.is_dir():
        if (saved := saved_files(path)) is not None:
            return [path / file for file in saved]
        entries = list(path.iterdir())
    elif path.exists() or not glob.has_magic(os.fspath(name)) or not is_glob(name):
        if path.exists() and kind_of(path) not in suffixes:
            suffix = path.suffix or "(none)"
            raise InputError(f"{path}: got suffix {suffix}, expected {known}, or a folder of them")
        return [path]
    else:
        entries = matches(os.fspath(name))
    files = [
        entry
        for entry in entries
        if kind_of(entry) in suffixes and not entry.name.startswith((".", "_"))
    ]
    if not files:
        raise InputError(f"{path}: no {known} file there; check the path")
    return sorted(files, key=natural_key)
