"""Checks before a command starts: address space for its libraries, and valid thread settings."""

import os
import resource
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from batchplan.errors import InputError, ResourceError
from batchplan.runtime import address_space, format_bytes, usable_processors

_LIBRARIES = ("numpy", "pyarrow.parquet", "scipy.linalg", "torch", "numba")
# Address space in bytes, measured, with a margin; torch is counted by the size of its files.
_MAPPED = 600 * 10**6
_WORKING = 550 * 10**6  # compiled code, and what stages need even for tiny data
_BUFFERS = 70 * 10**6  # of each OpenBLAS thread; stacks are counted separately
_STACKS = 5  # threads per processor: two of OpenBLAS, OpenMP, numba and ours
_MOST_THREADS = 1024


def check_limits() -> None:
    """Refuse an environment in which libraries would crash, before any is loaded.

    Where the address space is limited (``ulimit -v``), a library that finds no room aborts the
    process or retries forever. So there must be room for all of them, and all are loaded here,
    before data can take that room.

    Raises:
        InputError: NUMBA_NUM_THREADS is not a valid number of threads, which crashes numba.
        ResourceError: there is not enough address space.
    """
    name = "NUMBA_NUM_THREADS"
    most = max(_MOST_THREADS, os.cpu_count() or 1)
    setting = os.environ.get(name)
    if setting is not None and not (setting.isdecimal() and 1 <= int(setting) <= most):
        raise InputError(
            f"{name}: got {setting!r} in the environment, expected a number from 1 to {most}; "
            "correct it or unset it"
        )
    space = address_space()
    if space is None:
        return
    threads = _threads()
    needed = _needed(threads)
    # In kilobytes, as ulimit counts; what is already in use varies by a few megabytes.
    enough = (space.limit - space.left + needed) // 1024 // 1000 * 1000 + 16_000
    fewer = ", or OMP_NUM_THREADS to 1" if threads > 1 else ""
    refusal = (
        f"ulimit -v: the address space is limited to {format_bytes(space.limit)}, and the "
        f"libraries with {threads} threads need {format_bytes(needed)}; "
        f"set it to {enough} or more{fewer}"
    )
    if space.left < needed:
        raise ResourceError(refusal)
    # Arrow's own allocators reserve a gigabyte, or keep a thread.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        for library in _LIBRARIES:
            import_module(library)
    except (ImportError, OSError, MemoryError, RuntimeError, SystemError) as error:
        raise ResourceError(refusal) from error


def _needed(threads: int) -> int:
    """Bytes of address space that the libraries, their threads and a small run take."""
    torch = find_spec("torch")
    folder = Path(torch.origin).parent if torch and torch.origin else Path()
    files = sum(path.stat().st_size for path in folder.glob("lib/*.so*"))
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    stack = 8 << 20 if stack == resource.RLIM_INFINITY else stack
    return _MAPPED + files + _WORKING + threads * (_STACKS * stack + _BUFFERS)


def _threads() -> int:
    """Threads of the libraries: as many as processors, unless OMP_NUM_THREADS says otherwise."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdecimal() and int(setting) else usable_processors()
