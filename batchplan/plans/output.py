"""Checks whether a plan can be saved at a path, before planning and again when saving."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.inputs import PathLike, check_not_input
from batchplan.files.remote import no_url
from batchplan.files.sidecar import sidecar_path
from batchplan.plans.formats import FORMATS, format_of

STDOUT = "-"


def check_output(path: PathLike, *, force: bool = False, inputs: Sequence[PathLike] = ()) -> None:
    """Refuse a path at which a plan cannot or must not be saved; ``-`` is always accepted.

    Args:
        path: the file to write; if its format has a sidecar, that is checked too.
        force: whether an existing file may be replaced.
        inputs: files, folders and globs that must not be written to, including the metadata of
            plans among them.

    Raises:
        InputError: an unknown suffix; a folder that is missing or not writable; a name that is too
            long; a path that is a directory or special file, is an input, or would join an input
            folder or glob; an existing file without ``force``.
    """
    if os.fspath(path) == STDOUT:
        return
    output = no_url(path)
    form = format_of(output)
    check_file(output, force, inputs)
    if form.sidecar:
        check_file(sidecar_path(output), force, inputs)


def check_file(output: Path, force: bool, inputs: Sequence[PathLike]) -> None:
    """`check_output` for a file of any suffix."""
    check_place(output)
    check_not_input(output, inputs)
    if output.exists() and not force:
        raise InputError(f"{output}: exists already; replace it with --force or choose another")


def check_files(
    folder: Path, names: Iterable[str], force: bool, inputs: Sequence[PathLike]
) -> None:
    """`check_file` for files of a folder, which may not exist yet."""
    exists = folder.is_dir()
    if not exists and folder.exists():
        raise InputError(f"{folder}: is a file, expected a folder to write; choose another")
    if not exists:
        check_place(folder)
    for name in names:
        if exists:
            check_file(folder / name, force, inputs)
        else:
            check_not_input(folder / name, inputs)


def check_place(output: Path) -> None:
    """Refuse a path at which no file can be written, even with ``force``.

    Raises:
        InputError: as `check_output`.
    """
    mode = check_parent(no_url(output))
    if mode is not None and stat.S_ISDIR(mode):
        raise InputError(f"{output}: is a directory, expected a file; add a name, such as plan.npy")
    if mode is not None and not stat.S_ISREG(mode):
        raise InputError(f"{output}: is not a regular file; choose another path")


def check_parent(output: Path) -> int | None:
    """Require that an output can be made in its folder. Return the mode of what is there already;
    None if there is nothing.

    Raises:
        InputError: the folder is missing or not writable, or the system refuses the path, for
            example because the name is too long.
    """
    try:
        folder = Path(os.path.realpath(output)).parent
        if not folder.is_dir():
            raise InputError(f"{output}: folder {folder} does not exist; create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"{output}: folder {folder} is not writable; choose another one")
        with suppress(FileNotFoundError):
            return os.stat(output).st_mode
    except OSError as error:
        raise InputError(
            f"{output}: cannot be written ({error.strerror or error}); choose another path"
        ) from error
    return None


def check_folder(output: PathLike, mark: str, *, force: bool, inputs: Sequence[PathLike]) -> None:
    """Refuse an output folder that cannot or must not be written.

    Args:
        output: the folder.
        mark: name of the file in folders that may be replaced.
        force: whether such a folder may be.
        inputs: files, folders and globs that must not be written to.

    Raises:
        InputError: its parent is missing or not writable; it is an input, has one inside or is
            inside one; it is a file, or a folder with other files; or it exists, without ``force``.
    """
    path = no_url(output)
    check_parent(path)
    real = Path(os.path.realpath(path))
    check_not_input(path, inputs)
    if held := next(
        (name for name in inputs if real in Path(os.path.realpath(no_url(name))).parents), None
    ):
        raise InputError(f"{path}: has the input {held} inside; choose another")
    if not os.path.lexists(path):
        return
    if not real.is_dir():
        raise InputError(f"{path}: is a file, expected a folder to write; choose another")
    if any(real.iterdir()) and not (real / mark).is_file():
        raise InputError(
            f"{path}: is a folder with other files (no {mark}), which --force does not replace; "
            "choose another"
        )
    if not force:
        raise InputError(f"{path}: exists already; replace it with --force or choose another")


def is_plan(path: PathLike) -> bool:
    """Return whether a file is a plan rather than embeddings, judged by its suffix and what its
    format has of plans alone."""
    file = Path(path)
    known = file.suffix.lower() in FORMATS and os.path.isfile(file)
    return known and format_of(file).is_plan(file)
