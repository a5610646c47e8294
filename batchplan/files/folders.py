"""Writing a folder as a whole: it appears complete, or not at all.

It is filled under another name next to its place, then renamed.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchplan.errors import InputError
from batchplan.files.atomic import output_errors, remove, sync_folder
from batchplan.files.locks import mark_alive
from batchplan.files.signals import signals_deferred

_LOCK, _OLD = ".lock", ".old"


@contextmanager
def staged_folder(path: Path, *, keep: bool) -> Iterator[Path]:
    """Yield a folder that takes the place of ``path`` when the body ends.

    It is next to ``path``, with ``.partial`` added to its name. The body must force the content of
    its files to disk. SIGINT, SIGTERM and SIGHUP wait while the folder is put in place.

    Args:
        path: a folder that need not exist; its parent must.
        keep: whether the folder stays if the body fails, so that the next call goes on with it.
            Without it, the folder is empty at first, and is removed if the body fails.

    Raises:
        InputError: another process is filling the folder, or it is not of this function.
        OutputError: the folder could not be made or put in place; what was there before still is.
    """
    target = Path(os.path.realpath(path))
    staged = target.with_name(f"{target.name}.partial")
    with output_errors(path):
        staged.mkdir(exist_ok=True)
        if any(staged.iterdir()) and not (staged / _LOCK).exists():
            raise InputError(f"{staged}: has other files; move it, or choose another output")
        descriptor = os.open(staged / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not mark_alive(descriptor):
            raise InputError(f"{staged}: another run writes to it; wait, or choose another output")
        try:
            for left in staged.iterdir():  # by a killed run
                if left.name != _LOCK and (not keep or left.name.startswith(".")):
                    _remove(left)
            yield staged
            _put_in_place(path, staged, target)
        except BaseException:
            if not keep:
                with signals_deferred():
                    _remove(staged)
            raise
    finally:
        os.close(descriptor)


def _put_in_place(path: Path, staged: Path, target: Path) -> None:
    """Force the folders to disk and rename; ``path`` is for messages."""
    with output_errors(path):
        for folder, _, _ in os.walk(staged):
            sync_folder(Path(folder))
    with signals_deferred(), output_errors(path):
        replaced = target.exists()
        if replaced:
            os.rename(target, staged / _OLD)
        try:
            os.rename(staged, target)
        except OSError:
            if replaced:
                os.rename(staged / _OLD, target)
            raise
        sync_folder(target.parent)
        _remove(target / _OLD)
        _remove(target / _LOCK)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    remove(path)
