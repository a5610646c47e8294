"""Turns Arrow columns of lists of floats or int8 into matrices that share their memory."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchplan.data.arrow_types import plain, vector_type
from batchplan.errors import InputError

VECTORS = "lists of float16, float32 or int8"


def dimensions(column_type: pa.DataType, first: pa.Scalar | None, where: str) -> int:
    """Return the length of the lists of a column: by its type, or by the first list.

    Raises:
        InputError: there is no first list, or it is empty.
    """
    if hasattr(column_type, "list_size"):
        dim = column_type.list_size
    elif first is None or not first.is_valid:
        raise InputError(f"{where}, row 0: got null, expected a vector; fill or drop the row")
    else:
        dim = len(first)
    if dim == 0:
        raise InputError(f"{where}: got lists of 0 values, expected at least 1 dimension")
    return int(dim)


def matrix_of(column: pa.Array, dim: int, place: Callable[[int], str]) -> NDArray[Any]:
    """(n, dim): the numbers of a column of lists; ``place`` names a row of it.

    Raises:
        InputError: a row is null, of another length, or has a null.
    """
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(f"{place(row)}: got null, expected a vector; fill or drop the row")
    if not hasattr(column.type, "list_size"):
        lengths = np.diff(_numbers(column.offsets))
        if (ragged := np.flatnonzero(lengths != dim)).size:
            row = int(ragged[0])
            raise InputError(
                f"{place(row)}: got a list of {lengths[row]} values, expected {dim} as in the "
                "first row; make all vectors alike"
            )
    values = column.flatten()
    if values.null_count:
        row, element = divmod(pc.index(values.is_null(), True).as_py(), dim)
        raise InputError(
            f"{place(row)}: got null as element {element} (of {values.null_count} nulls), expected "
            "numbers; recompute or drop the row"
        )
    return _numbers(values).reshape(len(column), dim)


def _numbers(values: pa.Array) -> NDArray[Any]:
    """Return the numbers of an array without nulls, not copied. ``to_numpy`` of pyarrow would do
    the same, but imports pandas if it is installed, which takes longer than reading small data."""
    dtype = np.dtype(values.type.to_pandas_dtype())
    data = values.buffers()[1]
    if not len(values) or data is None:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize)


def matrices_of(values: Any, where: str) -> Iterator[NDArray[Any]]:
    """Yield each chunk of a column of lists as (n, d), in order.

    Args:
        values: a column of pyarrow, polars or pandas, or another object that exports an Arrow array
            or stream; or anything that `pyarrow.array` takes.
        where: the name of the column in messages.

    Raises:
        InputError: not a column of lists of floats or int8, or as `matrix_of`.
    """
    try:
        if not isinstance(values, pa.ChunkedArray):
            stream = hasattr(values, "__arrow_c_stream__")
            values = pa.chunked_array(values if stream else [pa.array(values)])
        values = plain(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{where}: got {type(values).__name__}, which is no column of vectors ({reason}); "
            f"expected {VECTORS}, all of one length"
        ) from error
    if vector_type(values.type) is None:
        raise InputError(f"{where}: got a column of {values.type}, expected {VECTORS}")
    dim = dimensions(values.type, values[0] if len(values) else None, where)
    start = 0
    for chunk in values.chunks:

        def place(row: int, start: int = start) -> str:
            return f"{where} row {start + row}"

        yield matrix_of(chunk, dim, place)
        start += len(chunk)
