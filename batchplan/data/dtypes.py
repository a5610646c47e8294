"""Which dtypes are accepted, and how numbers are converted to the stored dtype."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""NumPy has no bfloat16: an array has the bits of the numbers in a field of that name."""
NARROW = (BFLOAT16, np.dtype(np.int8))  # kept as they are; `widened` when rows are read

_CAST = "x.astype(np.float32)"
_FIELDS = "numpy.lib.recfunctions.structured_to_unstructured(x)"
# By the kind of a dtype, what it is, and how an array x of it becomes one of vectors.
_KINDS = {
    "b": ("booleans", _CAST), "i": ("integers", _CAST), "u": ("integers", _CAST),
    "c": ("complex numbers", "np.hstack([x.real, x.imag]).astype(np.float32)"),
}  # fmt: skip


def stored_dtype(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the native dtype in which values of ``dtype`` are read: float16 or float32, which
    can hold every bfloat16 and int8, and to which float64 is rounded.

    Raises:
        InputError: another dtype; the message begins with ``where``.
    """
    if dtype in NARROW or (dtype.kind == "f" and dtype.itemsize == 8):
        return np.dtype(np.float32)
    if dtype.kind == "f" and dtype.itemsize in (2, 4):
        return dtype.newbyteorder("=")
    if dtype.hasobject:
        raise InputError(
            f"{where}: got Python objects (dtype object), which are never unpickled; expected "
            "float16, float32 or int8: save np.stack(x).astype(np.float32)"
        )
    kind, mend = _KINDS.get(dtype.kind, ("", ""))
    if dtype.fields:
        vectors = [name for name, (one, *_) in dtype.fields.items() if len(one.shape) == 1]
        mend = f"x[{vectors[0]!r:.40}]" if vectors else _FIELDS
    elif dtype.kind == "V" and dtype.itemsize <= 2:
        one = "bfloat16" if dtype.itemsize == 2 else "float8_e4m3fn"
        kind = f"{one} of ml_dtypes, or the like"
        mend = f"x.view(ml_dtypes.{one}).astype(np.float32)"
    elif dtype == np.uint8:
        kind = "packed bits, or quantised numbers, which are converted with x - np.float32(128)"
        mend = "np.unpackbits(x, axis=1) * np.float32(2) - 1"
    got = f"structured dtype {dtype!s:.80}" if dtype.fields else f"dtype {dtype!s:.80}"
    raise InputError(
        f"{where}: got {got}{f' ({kind})' if kind else ''}, expected float16, float32 or int8 "
        f"vectors of an embedding model; if x has its vectors, save {mend or _CAST}"
    )


def kept_dtype(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the dtype in which copies of values are kept: int8 as it is, others as
    `stored_dtype`, which this raises as."""
    return dtype if dtype == np.int8 else stored_dtype(dtype, where)


def require_matrix(shape: tuple[int, ...], where: str) -> None:
    """Refuse a shape other than (rows, dimensions); ``where`` begins the message."""
    if len(shape) != 2:
        hints = {0: "a single number is not a matrix", 1: "stack the vectors with np.stack"}
        hint = hints.get(len(shape), "reshape to (rows, dimensions)")
        raise InputError(
            f"{where}: got {len(shape)} dimensions, shape {shape}, expected 2 "
            f"(rows, dimensions); {hint}"
        )
    if shape[0] and not shape[1]:
        raise InputError(f"{where}: got shape {shape}, expected at least 1 dimension")


def widened(rows: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 and int8 as float32, exactly; an array of another dtype as it is."""
    if rows.dtype == np.int8:
        return rows.astype(np.float32)
    if rows.dtype != BFLOAT16:
        return rows
    bits = rows.view("<u2").astype(np.uint32)
    bits <<= 16  # bfloat16 is the upper half of float32
    return bits.view(np.float32)


def fill(out: NDArray[Any], block: NDArray[Any]) -> None:
    """Copy ``block`` into ``out``, rounding float64 to float32. Numbers that overflow become Inf,
    which `batchplan.data.validate` refuses."""
    with np.errstate(over="ignore", under="ignore"):
        np.copyto(out, block, casting="same_kind")
