"""Compiled functions; the only module that imports numba.

Compiled code is cached on disk, because compiling takes seconds; each compilation is logged. The
cache never fails: entries that cannot be read are compiled and replaced; where nothing can be
written, none are kept.
"""

# mypy: disable-error-code="no-untyped-call"
# Numba's methods carry no types.

import logging
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numba
import torch
from llvmlite import binding, ir
from numba import get_num_threads, prange, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from batchplan.files.locks import folders_locked

__all__ = [
    "AHEAD",
    "LANES",
    "get_num_threads",
    "insert",
    "njit",
    "ordered",
    "prange",
    "prefetch",
    "processor",
    "reaching",
    "trailing_zeros",
    "use_threads",
]

AHEAD = 4  # rows to `prefetch`
LANES = 64  # numbers that `reaching` compares at once

_CONFIG: Any = numba.config
_LOGGER = logging.getLogger(__name__)  # what is compiled, as it takes seconds


class _Files(IndexDataCacheFile):
    """The files of a cache, named by the types that they are compiled for.

    Numba numbers the files. Two processes that compile a function for different types at the same
    time would use the same number, and later processes would run code for the wrong types. Nor do
    two processes write the index at the same time: one would lose what the other kept.
    """

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name(int(blake2b(repr(key).encode(), digest_size=8).hexdigest(), 16))
        self._save_data(name, data)
        with folders_locked([Path(self._cache_path)]):
            self._save_index({**self._load_index(), key: name})


@cache
def _package_stamp() -> str:
    """What changes with any module of the package.

    Numba compiles a function again if its own file changes, though it holds the code of those that
    it calls, which may be in other files.
    """
    folder = Path(__file__).parent
    stamps = ((path, path.stat()) for path in folder.rglob("*.py"))
    lines = sorted(
        f"{path.relative_to(folder)} {stat.st_mtime_ns} {stat.st_size}" for path, stat in stamps
    )
    return blake2b("\n".join(lines).encode(errors="surrogateescape"), digest_size=8).hexdigest()


class _Cache(FunctionCache):
    """Numba's cache of a function, with safe file names and without errors."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._name = f"{function.__module__}.{function.__qualname__}"
        locator, name = self._impl.locator, self._impl.filename_base
        stamp = locator.get_source_stamp(), _package_stamp()
        self._cache_file = _Files(self._cache_path, name, stamp)

    def load_overload(self, *args: Any) -> Any:
        overload = None
        try:
            overload = super().load_overload(*args)
        except MemoryError:
            raise
        except Exception:  # of any type: pickle reads a damaged file
            pass
        if overload is None:
            _LOGGER.info("compiling %s", self._name)
        return overload

    def save_overload(self, *args: Any) -> None:
        try:
            try:
                super().save_overload(*args)
            except (OSError, MemoryError):
                raise
            except Exception:  # a damaged index
                self.flush()
                super().save_overload(*args)
        except OSError as error:
            _warn_uncached(f"{self.cache_path} cannot be written to ({error.strerror or error})")


@cache
def _warn_uncached(reason: str) -> None:
    """Warn once per folder, not per function."""
    warnings.warn(
        f"compiled code is not kept: {reason}, so that each run takes seconds longer; set "
        "NUMBA_CACHE_DIR to a folder that can be written to and has space",
        RuntimeWarning,
        stacklevel=2,
    )


def processor() -> str:
    """The kind of processor that kernels are compiled for, such as ``sapphirerapids``."""
    return str(_CONFIG.CPU_NAME or binding.get_host_cpu_name())


def use_threads(count: int) -> None:
    """Let torch, and kernels as far as they can, use so many threads."""
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, _CONFIG.NUMBA_NUM_THREADS))


def _keeping_threads(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A `Dispatcher.compile` that keeps torch's number of threads.

    The first compilation starts numba's threads. If both use the same OpenMP, this gives torch as
    many, whatever OMP_NUM_THREADS or the caller of the library set.
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
        function: the function to compile; without it, the result is a decorator.
        options: further options of `numba.njit`, such as ``parallel``.
    """
    if function is None:
        return lambda function: njit(function, **options)
    compiled = numba.njit(function, nogil=True, **options)
    if compiled is function:  # NUMBA_DISABLE_JIT
        return compiled
    if options.get("parallel"):
        compiled.compile = _keeping_threads(compiled.compile)
    try:
        compiled._cache = _Cache(function)
    except RuntimeError:  # numba found no folder for the cache
        _warn_uncached("neither the package's folder nor the user's cache can be written to")
    return compiled


@njit
def insert(value, name, values, names):  # type: ignore[no-untyped-def]
    """Insert into a full list of descending values, of equal ones the lower name first.

    The last entry drops out, so the value must belong before it. Empty places hold the lowest
    value.
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


def _instructions(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`, whose type does not fit how compiled code calls it."""
    return intrinsic(function)


@_instructions
def reaching(_typing: Any, bits: Any, limits: Any, start: Any, least: Any) -> Any:
    """uint64: bit c says whether float ``start + c`` is ``limits[start + c]`` or ``least`` or more.

    What the compiler makes of a plain loop is four to ten times slower.

    Args:
        bits: int16 (bfloat16) or int32 (float32), contiguous: the bits of floats.
        limits: of that type, contiguous: `ordered` bits; ``start + LANES`` at least of both.
        start: of the `LANES` floats.
        least: `ordered` bits.
    """
    width = bits.dtype.bitwidth
    lanes = ir.VectorType(ir.IntType(width), LANES)
    index = ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def load(kind: Any, array: Any) -> Any:
            first = builder.gep(context.make_array(kind)(context, builder, array).data, [args[2]])
            return builder.load(builder.bitcast(first, lanes.as_pointer()), align=width // 8)

        def constant(value: int) -> Any:
            return ir.Constant(lanes, [value] * LANES)

        floats, each = load(signature.args[0], args[0]), load(signature.args[1], args[1])
        negative = builder.ashr(floats, constant(width - 1))
        whole = builder.xor(floats, builder.and_(negative, constant((1 << (width - 1)) - 1)))
        nothing = ir.Constant(lanes, ir.Undefined)
        single = builder.insert_element(nothing, args[3], index(0))
        zeros = ir.Constant(ir.VectorType(index, LANES), [0] * LANES)
        same = builder.shuffle_vector(single, nothing, zeros)
        either = (builder.icmp_signed(">=", whole, other) for other in (each, same))
        return builder.bitcast(builder.or_(*either), ir.IntType(LANES))

    return types.uint64(bits, limits, types.intp, bits.dtype), generate


@_instructions
def _prefetch_line(_typing: Any, rows: Any, r: Any, c: Any) -> Any:
    """Ask for the cache line of an entry of a matrix."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix = context.make_array(signature.args[0])(context, builder, args[0])
        width = builder.extract_value(matrix.shape, 1)
        place = builder.add(builder.mul(args[1], width), args[2])
        address = builder.bitcast(builder.gep(matrix.data, [place]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        ask = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = (flag(number) for number in (0, 3, 1))
        builder.call(ask, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), generate


@njit
def prefetch(rows, r):  # type: ignore[no-untyped-def]
    """Ask for a row of a contiguous float32 matrix that is read soon: the processor looks ahead
    over a row or two only, and waits for rows that lie further apart."""
    for c in range(0, rows.shape[1], 16):
        _prefetch_line(rows, r, c)


@_instructions
def trailing_zeros(_typing: Any, _value: Any) -> Any:
    """int64: the place of the lowest set bit of a uint64, of which at least one is set."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@njit
def ordered(bits):  # type: ignore[no-untyped-def]
    """int32: the bits of a float32 as a number that orders as the floats do. The upper half of it
    is that of the bfloat16 below."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
