"""Finds the shards of each side in paths, folders and globs, in order."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from batchplan.data.formats import format_of
from batchplan.data.splits import refuse_splits
from batchplan.errors import InputError
from batchplan.files.inputs import PathLike, has_input_suffix, listed, matches, suffixes
from batchplan.files.kinds import begins_as_data
from batchplan.files.reading import readable
from batchplan.files.remote import RemotePath, ShardPath, located, of_each
from batchplan.files.saved_data import refuse_part, refuse_table, saved_files
from batchplan.files.sidecar import has_plan_metadata, is_own_plan
from batchplan.options import ShardOrder
from batchplan.runtime import NOTE, Runtime
from batchplan.text import counted

# Files that look like rows, of kinds that are read and of others, also compressed.
_DATA = re.compile(
    r".*\.(npy|npz|parquet|parq|pq|arrow|feather|ipc|safetensors|fbin|f16bin|[iu]8bin|[fib]vecs|jsonl|"
    r"ndjson|csv|tsv|orc|avro|lance|pkl|pickle|pt|pth|bin|h5|hdf5)(\.(gz|zst|bz2|xz))?",
    re.IGNORECASE,
)
_COMPANIONS = {"config.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json"}


def find_shards(
    inputs: PathLike | Sequence[PathLike], side: str, order: ShardOrder | None = None
) -> list[ShardPath]:
    """Return the shards of a side, which error messages name; arguments and errors as
    `find_files`."""
    items = listed(inputs, side)
    if not items:
        raise InputError(f"{side}: got no path, expected at least one file, folder or glob")
    shards = find_files(items, side, suffixes(), _kind_of, located, order)
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
    order: ShardOrder | None = None,
) -> list[ShardPath]:
    """Return the files of paths, folders and globs; all are of one kind.

    Paths keep their order. A folder that `datasets` saved gives the files that its state names.
    Other folders and globs give all files that look like data, in one order: the same as by name
    and by the numbers in names (2 before 10), else the one in ``order``.

    Args:
        items: what the user named.
        where: begins messages about all files.
        expected: the suffixes that can be read, for messages.
        kind_of: returns the kind of a file, "" for an unknown one.
        locate: returns the path of a name.
        order: of files in folders and globs: ``lexicographic``, by the characters of the
            whole path, or ``natural``, by the numbers in it.

    Raises:
        InputError: a path is missing, unreadable or repeated; there are several kinds, or several
            splits of a data set; a folder is a table with versions; or the two orders differ and
            none is given.
        ResourceError: the system is out of file handles.
    """
    if order not in (None, *get_args(ShardOrder)):
        raise InputError(
            f"shard order: got {order!r:.80}, expected {' or '.join(get_args(ShardOrder))}"
        )
    files: list[ShardPath] = []
    for item in items:
        if not os.fspath(item):  # else the folder in which the process runs
            raise InputError(f"{where}: got an empty path, expected a file, folder or glob")
        with readable(os.fspath(item)):
            path = locate(os.fspath(item))
            found, begin = _expand(path, expected, kind_of)
        if begin is not None:
            refuse_splits(found, begin, str(path))
            found = _in_order(found, order, where)
        files += found
    by_kind = {kind_of(path) or path.suffix: path for path in files}
    if len(by_kind) > 1:
        examples = " and ".join(map(str, [*by_kind.values()][:2]))
        meant = next(filter(kind_of, files), files[0])
        raise InputError(
            f"{where}: got both {examples}, expected files of one kind; name those that are meant, "
            f"such as '{meant.parent}/*{meant.suffix}'"
        )
    seen: set[str] = set()
    for path in files:
        if (real := str(path.resolve())) in seen:
            raise InputError(
                f"{path}: is repeated for {where}, so its rows would count twice; give it once"
            )
        seen.add(real)
    return files


def _expand(
    path: ShardPath, expected: str, kind_of: Callable[[Any], str]
) -> tuple[list[ShardPath], int | None]:
    """Return the files of a path by name, and how many parts of their paths the user named; None
    if their order is given."""
    entries: Iterable[ShardPath]
    magic = [glob.has_magic(part) for part in path.parts]
    if path.is_dir():
        refuse_part(path)
        if (saved := saved_files(path)) is not None:
            return [path / name for name in saved], None
        entries, begin = list(path.iterdir()), len(path.parts)
    elif path.exists():
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file, expected a {expected} file")
        return [path], None
    elif any(magic):
        found = path.matches() if isinstance(path, RemotePath) else matches(str(path))
        entries, begin = [entry for entry in found if not entry.is_dir()], magic.index(True)
    else:
        raise InputError(f"{path}: no such file or folder; check the path")
    files = [one for one in entries if _is_data(one, begin, kind_of)]
    if len({kind_of(file) for file in files}) > 1:  # .json next to other data describes it
        files = [file for file in files if file.suffix.lower() != ".json"]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: is not a regular file, expected a {expected} file")
    inside = {folder for file in files or [path / "any"] for folder in file.parents}
    # Two folders above too, for files of a table such as the data/ of Iceberg; but a user may have
    # no access to what is above a URL.
    least = begin if isinstance(path, RemotePath) else begin - 2
    inside = {folder for folder in inside if len(folder.parts) >= least}
    of_each(refuse_table, sorted(inside, key=str))
    if not files:
        inner = sorted(entry.name for entry in entries if entry.is_dir())
        hint = f"; it has the folders {', '.join(inner[:5])}: name one, or all by '{path}/**/*'"
        hint *= bool(inner)
        raise InputError(f"{path}: no {expected} file there{hint}; check the path")
    if path.is_dir():
        _refuse_below(path, {file.suffix for file in files}, entries)
    return sorted(files, key=str), begin


def _refuse_below(path: ShardPath, suffixes: set[str], entries: Iterable[ShardPath]) -> None:
    """Refuse a folder that has files of the same kind in its folders too: other readers read them,
    and a folder is read here without them."""
    for folder in sorted(entries, key=str):
        if folder.name.startswith((".", "_")) or not folder.is_dir():
            continue
        for file in folder.iterdir():
            if file.suffix in suffixes and not _is_plan(file) and not file.is_dir():
                raise InputError(
                    f"{path}: has {file.suffix} files, and more in folders, such as {file}, which "
                    "pandas, pyarrow and load_dataset read too; name "
                    f"'{path}/**/*{file.suffix}' for all, or '{path}/*{file.suffix}'"
                )


def _is_data(path: ShardPath, begin: int, kind_of: Callable[[Any], str]) -> bool:
    """Return whether a file looks like data. Hidden files, markers such as _SUCCESS, and all files
    in folders with such names do not; the user named the parts of the path before ``begin``."""
    if path.name in _COMPANIONS or any(part.startswith((".", "_")) for part in path.parts[begin:]):
        return False
    if isinstance(path, Path) and is_own_plan(path):
        return False
    if kind_of(path):
        return True
    return not path.is_dir() and (bool(_DATA.fullmatch(path.name)) or begins_as_data(path))


def _is_plan(path: ShardPath) -> bool:
    """Return whether a file of this machine is a plan of ours, of any format with a suffix of data
    but Parquet."""
    return isinstance(path, Path) and (is_own_plan(path) or has_plan_metadata(path))


def _in_order(files: list[ShardPath], order: ShardOrder | None, where: str) -> list[ShardPath]:
    """Return files, which are in lexicographic order, in the chosen order."""
    natural = sorted(files, key=natural_key)
    if order is None and natural != files:
        one, other = next(pair for pair in zip(files, natural, strict=True) if pair[0] != pair[1])
        raise InputError(
            f"{where}: {one} comes before {other} in lexicographic order, as pyarrow, pandas, "
            "polars, DuckDB, load_dataset and sorted(glob) read files, and after it in natural "
            "order, by number; pass the order in which the rows were embedded, --shard-order "
            "lexicographic or natural (shard_order=), or name the files one by one"
        )
    return natural if order == "natural" else files


def order_of(files: Sequence[ShardPath], order: ShardOrder | None) -> ShardOrder | None:
    """Return the order that was chosen for files; None if it makes no difference to them."""
    return order if sorted(files, key=str) != sorted(files, key=natural_key) else None


def note_empty(files: Sequence[ShardPath], read: Sequence[str], runtime: Runtime) -> None:
    """Report the files that were skipped since they have no rows; ``read`` are the others."""
    known = {*read}
    if empty := [file for file in map(str, files) if file not in known]:
        skipped = counted(len(empty), "file")
        runtime.note(NOTE, f"skipped {skipped} without rows, such as {empty[0]}")


def natural_key(path: ShardPath) -> tuple[list[list[str | int]], str]:
    """Sorts ``img_emb_2`` before ``img_emb_10``; ties such as 1 and 01 are decided by the path."""
    # Splitting by a group alternates text and digits, so equal types are always compared.
    parts = [re.split(r"([0-9]+)", part) for part in path.parts]
    return [[int(t) if i % 2 else t for i, t in enumerate(part)] for part in parts], str(path)
