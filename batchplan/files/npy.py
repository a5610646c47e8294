"""Writes NPY arrays, and reads their headers with NumPy's own parser, never a pickle."""

from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
    # Version 3 differs only in the encoding of structured field names, which are refused anyway.
    (3, 0): npy_format.read_array_header_2_0,
}


def write_npy(stream: BinaryIO, array: NDArray[Any]) -> None:
    """Write an array in C order, with the bytes of np.save.

    np.save writes to the descriptor itself, and its errors do not say why.
    """
    array = np.ascontiguousarray(array)
    npy_format.write_array_header_1_0(stream, npy_format.header_data_from_array_1_0(array))
    stream.write(array.reshape(-1).view(np.uint8).data)


def read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether the order is Fortran's, and the dtype; the data follow in the
    stream.

    Raises:
        OSError: the stream cannot be read.
        ValueError: the header cannot be read.
    """
    try:
        version = npy_format.read_magic(stream)
        if version not in _READERS:
            raise ValueError(f"version {version}, expected 1.0 to 3.0")
        return _READERS[version](stream)
    except OSError:
        raise
    # On damaged bytes, NumPy passes on whatever its tokenizer, literals and dtypes raise.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{reason:.200}") from error
