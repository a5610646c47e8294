"""Writing files so that each is, at any moment, absent, the old one or the new one."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from batchplan.errors import OutputError

Writer = Callable[[BinaryIO], object]


def write_files(contents: Mapping[Path, Writer | bytes]) -> None:
    """Write all files, then put them in place one after the other, in the order given.

    What goes into a file is its bytes, or a function that writes them to a stream. Each is written
    in full and forced to disk beside its target before the first one is put in place, so a full
    disk leaves every old file as it was. A symbolic link is written through. New files get the
    permissions of the umask, replaced ones keep theirs.

    Raises:
        OutputError: a file could not be written; no temporary file is left.
    """
    staged: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            with _output_errors(path):
                target = Path(os.path.realpath(path))
                staged[target] = target.with_name(f".batchplan-{secrets.token_hex(8)}.tmp")
                _stage(staged[target], target, content)
        for target, temporary in staged.items():
            with _output_errors(target):
                os.replace(temporary, target)
                _sync_folder(target.parent)
    finally:  # an interrupt too must leave nothing behind
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


@contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: could not be written ({error.strerror or error}); any file that was there "
            "before is unchanged; free some space or choose another folder"
        ) from error


def _stage(temporary: Path, target: Path, content: Writer | bytes) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with open(descriptor, "wb") as stream:
        if target.exists():
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
        if isinstance(content, bytes):
            stream.write(content)
        else:
            content(stream)
        stream.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    # Makes the new name survive a power cut. The file is in place already, and some network file
    # systems cannot do it, so a refusal is no failure.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
