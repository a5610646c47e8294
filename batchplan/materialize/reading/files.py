"""From paths, folders and globs to the files of a data set, in order."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from batchplan.data.shards import natural_key
from batchplan.errors import InputError
from batchplan.files.documents import parse_json
from batchplan.files.inputs import PathLike, is_glob, matches
from batchplan.files.reading import read_regular, readable

_STATE = "state.json"  # in a folder that `datasets.save_to_disk` wrote
_SPLITS = "dataset_dict.json"
_MOST_BYTES = 16 << 20
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
    path = Path(name)
    known = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
    if path.is_dir():
        if (path / _SPLITS).exists():
            inner = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
            raise InputError(f"{path}: holds several splits, {', '.join(inner)}; name one of them")
        if (path / _STATE).exists():
            return _saved(path)
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


def _saved(folder: Path) -> list[Path]:
    """The files of a folder that `datasets` saved."""
    state = folder / _STATE
    try:
        document = parse_json(read_regular(state, _MOST_BYTES, "the state of a data set"))
        names = [file["filename"] for file in document["_data_files"]]
        if not names or not all(
            isinstance(name, str) and Path(name).name == name for name in names
        ):
            raise ValueError("it names no files of this folder")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{state}: cannot be read ({error!s:.200}); save the data set again with save_to_disk"
        ) from error
    return [folder / name for name in names]
