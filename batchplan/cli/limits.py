"""Whether a command can start at all: room for its libraries, and settings that they take."""

import os
import resource
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from batchplan.errors import InputError, ResourceError
from batchplan.runtime import address_space, format_bytes, usable_processors

_LIBRARIES = ("numpy", "pyarrow.parquet", "scipy.linalg", "torch", "numba")
# Address space in bytes, measured with room to spare; what torch maps is in its files.
_MAPPED = 600 * 10**6
_WORKING = 550 * 10**6  # compiled code, and what stages ask for however small the data are
_BUFFERS = 70 * 10**6  # of a thread, in each OpenBLAS; its stacks are counted apart
_STACKS = 5  # threads that each processor has: of two OpenBLAS, OpenMP, numba and our own
_MOST_THREADS = 1024


def check_limits() -> None:
    """Refuse an environment in which libraries crash, before any is loaded.

    Where the address space is limited (``ulimit -v``), large libraries are loaded at once: one that
    finds no room aborts the process, or tries for ever; so there must be room for all before any is
    loaded, and no data may take it.

    Raises:
        InputError: NUMBA_NUM_THREADS is no number of threads, which crashes numba or makes it
            complain at length.
        ResourceError: there is not enough address space.
    """
    name = "NUMBA_NUM_THREADS"
    most = max(_MOST_THREADS, os.cpu_count() or 1)
    given = os.environ.get(name)
    if given is not None and not (given.isdecimal() and 1 <= int(given) <= most):
        raise InputError(
            f"{name}: got {given!r} in the environment, expected a number from 1 to {most}; "
            "correct it or unset it"
        )
    space = address_space()
    if space is None:
        return
    threads = _threads()
    needed = _needed(threads)
    # In the kilobytes of ulimit; what is in use before varies by a few megabytes.
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
    """Bytes of address space that the libraries and their threads take, and a first small run."""
    torch = find_spec("torch")
    folder = Path(torch.origin).parent if torch and torch.origin else Path()
    files = sum(path.stat().st_size for path in folder.glob("lib/*.so*"))
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    stack = 8 << 20 if stack == resource.RLIM_INFINITY else stack
    return _MAPPED + files + _WORKING + threads * (_STACKS * stack + _BUFFERS)


def _threads() -> int:
    """Threads of the libraries: as many as processors, unless OpenMP is told otherwise."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) else usable_processors()
