"""Finds the files of a data set in paths, folders and globs, in order."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from batchplan.data.shards import check_alike, natural_key
from batchplan.errors import InputError
from batchplan.files.inputs import PathLike, is_glob, matches
from batchplan.files.reading import readable
from batchplan.files.remote import no_url
from batchplan.files.saved_data import saved_files

_ALIASES = {".json": ".jsonl", ".ndjson": ".jsonl", ".feather": ".arrow"}


def find_files(data: Sequence[PathLike], suffixes: Sequence[str]) -> tuple[list[Path], str]:
    """Return the files, and the suffix of their format.

    Paths keep their order. A folder that `datasets` saved gives the files that its state names.
    Other folders and globs give their files with a known suffix, in natural order (2 before 10).

    Args:
        data: files, folders and globs.
        suffixes: those that can be read.

    Raises:
        InputError: a path is missing, has an unknown suffix or is given twice, or the files have
            several formats.
    """
    paths: list[Path] = []
    for name in data:
        with readable(os.fspath(name)):
            paths += _expanded(name, suffixes)
    check_alike(paths, "data", kind_of)
    return paths, kind_of(paths[0])


def kind_of(path: Path) -> str:
    """Return the suffix of the format of a file, such as ``.jsonl`` for ``a.ndjson``."""
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
