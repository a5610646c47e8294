"""Whether a plan can be saved at a path: asked before the planning starts, and again on saving."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from batchplan.errors import InputError
from batchplan.plans.formats import FORMATS, STDOUT, format_of, parquet, sidecar_path


def check_output(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    inputs: Sequence[str | os.PathLike[str]] = (),
) -> None:
    """Refuse an output path that a plan cannot or must not be saved at; ``-`` always can.

    Args:
        path: the file to write; where its format has a sidecar, that file is checked too.
        force: whether an existing file may be replaced.
        inputs: files and folders that were read and must not be written to.

    Raises:
        InputError: an unknown suffix; a folder that is missing or not writable; a path that is a
            directory or another special file, an input, or inside an input folder; an existing
            file without ``force``.
    """
    if os.fspath(path) == STDOUT:
        return
    output = Path(path)
    form = format_of(output)
    check_file(output, force, inputs)
    if form.sidecar:
        check_file(sidecar_path(output), force, inputs)


def check_file(output: Path, force: bool, inputs: Sequence[str | os.PathLike[str]]) -> None:
    """`check_output` for a file of any kind, whatever its suffix."""
    folder = Path(os.path.realpath(output)).parent
    if not folder.is_dir():
        raise InputError(f"{output}: folder {folder} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{output}: folder {folder} is not writable; choose another one")
    if output.is_dir():
        raise InputError(f"{output}: is a directory, expected a file name; add one, as plan.npy")
    if output.exists() and not output.is_file():
        raise InputError(f"{output}: is not a regular file; choose another path")
    for name in map(Path, inputs):
        if name.exists() and _holds(name, output):
            raise InputError(f"{output}: would overwrite or join the input {name}; choose another")
    if output.exists() and not force:
        raise InputError(f"{output}: exists already; replace it with --force or choose another")


def _holds(source: Path, output: Path) -> bool:
    """Whether the output is the input itself, or would lie in the input folder."""
    if source.is_dir():
        return Path(os.path.realpath(source)) in Path(os.path.realpath(output)).parents
    return output.exists() and output.samefile(source)


def is_plan(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a plan rather than embeddings, judged by its suffix and its metadata.

    The suffixes ``.npy`` and ``.parquet`` serve both: such a file is a plan if it carries a plan's
    metadata.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in FORMATS or not file.is_file():
        return False
    if suffix == ".npy":
        return sidecar_path(file).is_file()
    return suffix != ".parquet" or parquet.has_metadata(file)
