"""Which dtypes are accepted, and how numbers are converted to the stored dtype."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.errors import InputError

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""NumPy has no bfloat16: an array has the bits of the numbers in a field of that name."""

_KINDS = {"b": "booleans", "i": "integers", "u": "integers", "c": "complex numbers"}


def stored_dtype(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the native dtype in which values of ``dtype`` are stored: float16 or float32, which
    can hold every bfloat16, and to which float64 is rounded.

    Raises:
        InputError: another dtype; the message begins with ``where``.
    """
    if dtype == BFLOAT16 or (dtype.kind == "f" and dtype.itemsize == 8):
        return np.dtype(np.float32)
    if dtype.kind == "f" and dtype.itemsize in (2, 4):
        return dtype.newbyteorder("=")
    if dtype.hasobject:
        raise InputError(
            f"{where}: got Python objects (dtype object), which are never unpickled; expected "
            "float16 or float32: save np.stack(vectors).astype(np.float32)"
        )
    got = f"structured dtype {dtype}" if dtype.names or dtype.subdtype else f"dtype {dtype}"
    kind = f" ({_KINDS[dtype.kind]})" if dtype.kind in _KINDS else ""
    raise InputError(
        f"{where}: got {got}{kind}, expected float16 or float32 vectors of an embedding model; "
        "if these are its vectors, convert them with .astype(np.float32)"
    )


def widened(rows: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as float32, bit by bit the same numbers; an array of another dtype as it is."""
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
