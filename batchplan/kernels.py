"""Compiled functions, and numba itself: no other module imports it.

What numba compiles is kept on disk, as it takes seconds, and logged. A cache is no reason to fail:
what cannot be read from it is compiled and replaced, and where nothing can be written it goes
without.
"""

# mypy: disable-error-code="no-untyped-call"
# Numba's methods carry no types.

import logging
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from typing import Any

import numba
import torch
from numba import get_num_threads, prange
from numba.core.caching import FunctionCache, IndexDataCacheFile

__all__ = ["get_num_threads", "njit", "prange"]

_LOGGER = logging.getLogger(__name__)  # what is compiled, as it takes seconds


class _Files(IndexDataCacheFile):
    """The files of a cache, named by the types that they were compiled for.

    Numba numbers them. Two processes that compile a function for different types at the same time
    would give both the same number, and later ones would run code of the wrong types.
    """

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name(int(blake2b(repr(key).encode(), digest_size=8).hexdigest(), 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


class _Cache(FunctionCache):
    """Numba's cache of a function, without what is wrong with its files."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._name = f"{function.__module__}.{function.__qualname__}"
        locator, name = self._impl.locator, self._impl.filename_base
        self._cache_file = _Files(self._cache_path, name, locator.get_source_stamp())

    def load_overload(self, *which: Any) -> Any:
        loaded = None
        try:
            loaded = super().load_overload(*which)
        except MemoryError:
            raise
        except Exception:  # pickle promises no particular kind for a file that was cut or damaged
            pass
        if loaded is None:
            _LOGGER.info("compiling %s", self._name)
        return loaded

    def save_overload(self, *what: Any) -> None:
        try:
            try:
                super().save_overload(*what)
            except (OSError, MemoryError):
                raise
            except Exception:  # the index that it would add to is damaged
                self.flush()
                super().save_overload(*what)
        except OSError as error:
            _warn_uncached(f"{self.cache_path} cannot be written to ({error.strerror or error})")


@cache
def _warn_uncached(reason: str) -> None:
    """Once for each folder, not for each function."""
    warnings.warn(
        f"compiled code is not kept: {reason}, so that each run takes seconds longer; set "
        "NUMBA_CACHE_DIR to a folder that can be written to and has space",
        RuntimeWarning,
        stacklevel=2,
    )


def _keeping_threads(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A `Dispatcher.compile` that leaves torch the number of threads that it has.

    The first starts numba's threads. Where both use one OpenMP, this gives torch as many as numba
    has, whatever OMP_NUM_THREADS or the caller of the library say.
    """

    def compile_or_load(signature: Any) -> Any:
        threads = torch.get_num_threads()
        try:
            return build(signature)
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)

    return compile_or_load


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` without the global interpreter lock, and with a cache that never fails.

    Args:
        function: what to compile; a decorator is returned without it.
        options: more of `numba.njit`, such as ``parallel``.
    """
    if function is None:
        return lambda function: njit(function, **options)
    made = numba.njit(function, nogil=True, **options)
    if made is function:  # NUMBA_DISABLE_JIT
        return made
    if options.get("parallel"):
        made.compile = _keeping_threads(made.compile)
    try:
        made._cache = _Cache(function)
    except RuntimeError:  # what numba says if it finds no folder at all
        _warn_uncached("neither the package's folder nor the user's cache can be written to")
    return made


@njit
def insert(value, name, values, names):  # type: ignore[no-untyped-def]
    """Insert into a full list of falling values, of equal ones the lower name first.

    The last entry drops out, so the value must belong before it. Empty places hold a value below
    all others.
    """
    place = values.size - 1
    while place > 0 and (
        values[place - 1] < value or (values[place - 1] == value and names[place - 1] > name)
    ):
        values[place] = values[place - 1]
        names[place] = names[place - 1]
        place -= 1
    values[place] = value
    names[place] = name
