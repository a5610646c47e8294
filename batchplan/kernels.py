"""Compiled functions; the only module that imports numba.

Compiled code is cached on disk, because compiling takes seconds; each compilation is logged. The
cache never fails: entries that cannot be read are compiled and replaced; where nothing can be
written, none are kept. Code that root compiled next to the package serves all users.
"""

# mypy: disable-error-code="no-untyped-call"
# Numba's methods carry no types.

import errno
import logging
import os
import pickle
import secrets
import stat
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core.caching import NullCache
from numba.core.cgutils import get_or_insert_function
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import intrinsic

AHEAD = 4  # rows to `prefetch`
LANES = 64  # numbers that `reaching` compares at once

_CONFIG: Any = numba.config
_DIGEST = 32  # bytes
# No C function calls a kernel, so no wrapper is compiled for one.
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
_CONSTANTS = (int, float, complex, str, tuple, np.generic)  # globals whose values code holds
_LOGGER = logging.getLogger(__name__)  # what is compiled, as it takes seconds

_texts: dict[str, bytes] = {}  # of the files that hold kernels
_uncached: list[str] = []  # why compiled code is not kept, once that was said


def _stamp(function: Any) -> bytes:
    """Return a digest of what the compiled code of a function depends on: the files of the
    functions and tuples of its package that it uses, directly or through others, the values of
    globals, and the versions of libraries."""
    package = function.__module__.partition(".")[0]
    found, files, values = [function], set(), set()
    for own in found:
        files.add(own.__code__.co_filename)
        for name in _names(own.__code__):
            value = own.__globals__.get(name)
            used = getattr(value, "py_func", getattr(value, "_defn", value))
            if isinstance(value, _CONSTANTS):
                values.add(f"{name} {value!r}")
            elif getattr(used, "__module__", "").partition(".")[0] != package:
                continue
            elif isinstance(used, FunctionType) and used not in found:
                found.append(used)
            elif isinstance(used, type):
                files.add(str(sys.modules[used.__module__].__file__))
    versions = f"{numba.__version__} {llvmlite.__version__} {np.__version__}"
    texts = [_texts.get(file) or Path(file).read_bytes() for file in sorted(files)]
    return blake2b(
        b"\0".join([versions.encode(), *map(str.encode, sorted(values)), *texts])
    ).digest()


def _names(code: CodeType) -> set[str]:
    """Return the names of globals and attributes that code reads, also in functions within."""
    within = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, within))


class _Cache(NullCache):
    """Numba's cache of a function, with one file for each combination of types.

    Loading a file runs code in it, so the file must be this user's or root's. It starts with a
    digest of the sources and of the rest of the file. If that differs, the file is old or damaged,
    and the function is compiled again.
    """

    def __init__(self, function: Any) -> None:
        source = Path(function.__code__.co_filename).absolute()
        line = function.__code__.co_firstlineno
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._file = f"{source.stem}.{function.__qualname__}-{line}"
        self._folders = _folders(source.parent)
        _texts[function.__code__.co_filename] = source.read_bytes()  # as it is imported now
        self._function = function

    def load_overload(self, signature: Any, context: Any) -> Any:
        context.refresh()
        key = signature, context.codegen().magic_tuple()
        for path in self._paths(key):
            try:
                content = _read_own(path)
                code = content[_DIGEST:]
                if content[:_DIGEST] == self._digest(code):
                    stored, result = pickle.loads(code)
                    if stored == key:
                        return CompileResult._rebuild(context, *result)
            except MemoryError:
                raise
            except Exception:  # of any type: a module may be missing that the code refers to
                pass
        _LOGGER.info("compiling %s", self._name)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        if result.library.has_dynamic_globals:  # addresses that differ in other processes
            return
        key = signature, result.codegen.magic_tuple()
        code = dumps((key, result._reduce()))
        for path in self._paths(key):
            try:
                _write_own(path, self._digest(code) + code)
                return
            except OSError as error:
                reason = f"{path.parent.parent} cannot be used ({error.strerror or error})"
        _warn_uncached(reason)

    def _paths(self, key: Any) -> list[Path]:
        kind = repr((sys.implementation.cache_tag, key)).encode()
        name = f"{self._file}.{blake2b(kind, digest_size=8).hexdigest()}.nbc"
        return [folder / name for folder in self._folders]

    def _digest(self, code: bytes) -> bytes:
        return blake2b(self._sources + code, digest_size=_DIGEST).digest()

    @cached_property
    def _sources(self) -> bytes:
        return _stamp(self._function)  # at the first call, when all that it calls is defined


def _folders(home: Path) -> list[Path]:
    """Return where to keep the compiled functions of files in a folder.

    All are read. The first one that can be written to is used for new code.
    """
    name = f"{home.name}_{blake2b(os.fsencode(home), digest_size=8).hexdigest()}"
    if _CONFIG.CACHE_DIR:
        return [Path(_CONFIG.CACHE_DIR) / name]
    of_user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    more = [of_user / "batchplan" / name] if of_user.is_absolute() else []  # there may be no home
    return [home / "__pycache__", *more]


def _read_own(path: Path) -> bytes:
    """Return the content of a file that only this user or root can have written.

    Raises:
        OSError: the file cannot be read, is of another user, or all users may write to it.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
            raise PermissionError(errno.EPERM, f"others may have written {path}")
        return file.read()


def _write_own(path: Path, content: bytes) -> None:
    """Write or replace a file that all users may read and only this one may write, whatever the
    umask. Missing folders are made.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with open(staged, "xb", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            file.write(content)
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            staged.unlink()
        raise


def _warn_uncached(reason: str) -> None:
    """Warn once, not for each function."""
    if _uncached:
        return
    _uncached.append(reason)
    warnings.warn(
        f"compiled code is not kept: {reason}, so that each run takes seconds longer; set "
        "NUMBA_CACHE_DIR to a folder with space that only you may write to, such as "
        "~/batchplan-kernels",
        RuntimeWarning,
        stacklevel=2,
    )


def processor() -> str:
    """Return the kind of processor that kernels are compiled for, such as ``sapphirerapids``."""
    return str(_CONFIG.CPU_NAME or binding.get_host_cpu_name())


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` without the global interpreter lock, and with a cache that never fails.

    Args:
        function: the function to compile; without it, the result is a decorator.
        options: further options of `numba.njit`, such as ``fastmath``. Kernels run on the threads
            of `batchplan.threads`: ``parallel`` would take twice as long to compile. What one
            kernel alone calls is ``inline="always"``: compiled within it, not first by itself,
            which halves the time. It then has the ``fastmath`` of its caller.
    """
    if function is None:
        return lambda function: njit(function, **options)
    compiled = numba.njit(function, **_OPTIONS, **options)
    if compiled is function:  # NUMBA_DISABLE_JIT
        return compiled
    if not function.__closure__:  # its values are not in the file
        try:
            compiled._cache = _Cache(function)
        except OSError as error:  # typed at a prompt, or in a zip file
            _warn_uncached(f"the source of {function.__name__} cannot be read ({error.strerror})")
    return compiled


@njit(fastmath={"reassoc", "contract"})
def dot(a, b):  # type: ignore[no-untyped-def]
    """float32: the product of two float32 rows. The order of the sum depends on the machine."""
    total = np.float32(0)
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@njit(fastmath={"reassoc", "contract"})
def exact_dot(a, b):  # type: ignore[no-untyped-def]
    """float32: the product of two float32 rows, rounded once from float64."""
    total = 0.0
    for k in range(a.size):
        total += np.float64(a[k]) * np.float64(b[k])
    return np.float32(total)


@njit
def insert(value, name, values, names):  # type: ignore[no-untyped-def]
    """Insert a value and its name into a full list of descending values, before the last entry,
    which drops out.

    Of equal values, the lower name comes first. Empty places have the lowest value.
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


@njit
def place_of(value, rising, start, stop):  # type: ignore[no-untyped-def]
    """Return the first place from start to stop whose value is at least the given one, else
    ``stop``, as `np.searchsorted` does, which takes longer to compile."""
    while start < stop:
        middle = (start + stop) // 2
        if rising[middle] < value:
            start = middle + 1
        else:
            stop = middle
    return start


def _instructions(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`, whose type does not fit how compiled code calls it."""
    return intrinsic(function)


@_instructions
def reaching(_typing: Any, bits: Any, limits: Any, start: Any, least: Any) -> Any:
    """Return a uint64 whose bit c is set if float ``start + c`` is at least ``limits[start + c]``,
    or at least ``least``.

    A plain loop is four to ten times slower when it is compiled.

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
    """Load a row of a contiguous float32 matrix into the cache before it is read. The processor
    itself looks ahead over a row or two only, and would wait for rows that are further apart."""
    for c in range(0, rows.shape[1], 16):
        _prefetch_line(rows, r, c)


@_instructions
def loaded(_typing: Any, _address: Any, like: Any) -> Any:
    """Return the number at an address, which need not be aligned, of the type of ``like``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_data_type(signature.return_type)
        return builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)

    return like(types.int64, like), generate


@_instructions
def trailing_zeros(_typing: Any, _value: Any) -> Any:
    """Return, as int64, the place of the lowest set bit of a uint64 that is not 0."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@njit
def ordered(bits):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 as an int32 that sorts like the float. Its upper half has
    the bits of the nearest bfloat16 that is not above."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
