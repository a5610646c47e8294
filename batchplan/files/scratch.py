"""Arrays in temporary files, for data that is too large for memory.

The files have no names, so the system removes them with the array, however the process ends.
"""

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from batchplan.errors import ResourceError
from batchplan.runtime import format_bytes

_BLOCK = 1 << 20


def scratch_folder() -> Path:
    """Return where temporary files go: TMPDIR, or else /var/tmp, as /tmp may be memory."""
    folders = [Path(name) for name in (os.environ.get("TMPDIR"), "/var/tmp") if name]
    usable = (folder for folder in folders if folder.is_dir() and os.access(folder, os.W_OK))
    return next(usable, Path(tempfile.gettempdir()))


def scratch_array(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros in a temporary file, whose disk space is reserved.

    Raises:
        ResourceError: there is no room for it.
    """
    with scratch_file(int(np.prod(shape)) * np.dtype(dtype).itemsize) as file:
        return mapped(file, dtype, shape)


def scratch_file(size: int) -> BinaryIO:
    """Return a temporary file of ``size`` zero bytes, whose disk space is reserved.

    Raises:
        ResourceError: there is no room for it.
    """
    try:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile(dir=scratch_folder()))
            _reserve(file, size)
            stack.pop_all()
    except OSError as error:
        folder = scratch_folder()
        free = format_bytes(shutil.disk_usage(folder).free)
        raise ResourceError(
            f"{folder}: a temporary file of {format_bytes(size)} could not be made "
            f"({error.strerror}, {free} free); name another folder in the environment variable "
            "TMPDIR, or raise --memory"
        ) from error
    return file


def _reserve(file: BinaryIO, size: int) -> None:
    """Reserve disk space; without it, a full disk would end the process when it uses the array."""
    if hasattr(os, "posix_fallocate"):
        if size:
            os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, _BLOCK):  # macOS
        file.write(bytes(min(_BLOCK, size - start)))
    file.flush()


def mapped(file: BinaryIO, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array in a `scratch_file`."""
    if not np.prod(shape):
        return np.zeros(shape, dtype)  # no map is empty
    return np.memmap(file, dtype, "r+", shape=shape)
