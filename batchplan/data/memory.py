"""Sides in memory: arrays, tensors and columns of other libraries, none of which is imported."""

import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.data.dtypes import BFLOAT16, NARROW, fill, require_matrix, stored_dtype, widened
from batchplan.data.matrix import RowMatrix, Shard, Side
from batchplan.errors import InputError
from batchplan.text import check_urls

_ARROW = ("__arrow_c_stream__", "__arrow_c_array__")


def in_memory(values: Any) -> bool:
    """Return whether ``values`` are a side in memory rather than paths."""
    return _is_column_of_datasets(values) or any(
        hasattr(values, name) for name in ("__array__", *_ARROW)
    )


def side_of(name: str, values: Any) -> Side:
    """Make a side of values in memory, which are copied only if they must be converted.

    Args:
        name: ``x`` or ``y``.
        values: (N, d): see `Embeddings.from_arrays`.

    Raises:
        InputError: they are no matrix of numbers of an accepted dtype, or a row is null or ragged.
    """
    where = f"{name} array"
    segments = [_segment(array, where) for array in _arrays(values, where)]
    return Side(name, RowMatrix(segments), (Shard(where, name, sum(map(len, segments))),))


def negative_sides(values: Any, num_rows: int, dim: int) -> list[Side]:
    """Return sides ``negative_1``, ``negative_2``, ... from mined negatives in memory.

    Args:
        values: see `Embeddings.from_arrays`.
        num_rows, dim: N and d of the anchors.

    Raises:
        InputError: as `side_of`; or one of N arrays is not (k_i, d).
    """
    shape = tuple(getattr(values, "shape", ()))
    if len(shape) == 3:
        columns = [values[:, number] for number in range(shape[1])]
    elif len(shape) == 2 or in_memory(values):
        columns = [values]
    else:
        columns = list(values)
        if len(columns) == num_rows and any(len(rows) != num_rows for rows in columns):
            columns = _columns_of_lists(columns, dim)
    return [side_of(f"negative_{number}", rows) for number, rows in enumerate(columns, 1)]


def _columns_of_lists(lists: list[Any], dim: int) -> list[NDArray[Any]]:
    """(N, d) each, from N arrays (k_i, d): the first row of every list, then the second, and so
    on; zeros where a list has ended."""
    arrays = []
    for row, values in enumerate(lists):
        where = f"negatives of row {row}"
        (array,) = _arrays(values, where)
        if array.ndim != 2 or array.shape[1] != dim:
            if array.size:
                raise InputError(
                    f"{where}: got shape {array.shape}, expected (negatives, {dim}); embed "
                    "anchors and documents into one space"
                )
            array = np.empty((0, dim), np.float16)
        arrays.append(widened(_segment(array, where)) if len(array) else array)
    most = max(map(len, arrays))
    if not most:
        raise InputError("negatives: got empty lists for all rows; leave the argument out")
    columns = np.zeros((most, len(arrays), dim), np.result_type(*arrays))
    for row, array in enumerate(arrays):
        columns[: len(array), row] = array
    return list(columns)


def _segment(array: NDArray[Any], where: str) -> NDArray[Any]:
    if array.dtype.name == "bfloat16":  # of ml_dtypes, as JAX has it
        array = array.view(BFLOAT16)
    dtype = stored_dtype(array.dtype, where)
    require_matrix(array.shape, where)
    flags = array.flags
    if array.dtype in (dtype, *NARROW) and flags.c_contiguous and flags.aligned:
        return array
    converted = np.empty(array.shape, dtype)
    fill(converted, widened(array))
    return converted


def _arrays(values: Any, where: str) -> Iterable[NDArray[Any]]:
    """Return the rows of a side, as one array or several."""
    if isinstance(values, str | os.PathLike):
        check_urls(values)
        raise InputError(
            f"{where}: got the text {os.fspath(values)!r:.80}, expected (N, d) numbers; files are "
            "read by batchplan.load_embeddings"
        )
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{where}: got a masked array, expected an array without a mask; fill it")
    if _is_column_of_datasets(values):
        name, source = values.column_name, values.source
        if is_transformed(source):
            values = values[:]
        else:
            values = source.select_columns([name]).with_format("arrow")[:][name]
    is_table = len(getattr(values, "shape", ())) == 2
    if not is_table and any(hasattr(values, name) for name in _ARROW):
        return _columns(values, where)
    try:
        array = _array(values)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{where}: got {type(values).__name__}, which is not an array ({reason}); expected "
            "(N, d) float16, bfloat16, float32 or int8: an array, a tensor, or a column of vectors"
        ) from error
    if array.dtype.hasobject and not isinstance(values, np.ndarray):
        if array.ndim == 1:  # a column of pandas before 3.0
            return _columns(array, where)
        raise InputError(
            f"{where}: got {type(values).__name__} of Python objects, expected numbers; of a table "
            "pass a column of vectors for each side"
        )
    return [array]


def _array(values: Any) -> NDArray[Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return np.asarray(values)
    tensor = values.detach().cpu()
    if tensor.dtype != torch.bfloat16:
        return np.asarray(tensor.numpy())
    return np.asarray(tensor.view(torch.int16).numpy()).view(BFLOAT16)


def _columns(values: Any, where: str) -> Iterable[NDArray[Any]]:
    from batchplan.data.formats.lists import matrices_of  # arrays need no Arrow

    return matrices_of(values, where)


def is_transformed(dataset: Any) -> bool:
    """Return whether a transform makes the rows of a Dataset of `datasets`, so that its table has
    others."""
    return bool(getattr(dataset, "format", {}).get("type") == "custom")


def _is_column_of_datasets(values: Any) -> bool:
    """Return whether this is ``dataset["name"]``, a lazy sequence."""
    return hasattr(values, "column_name") and hasattr(getattr(values, "source", None), "features")
