"""NPY shards, as np.save writes them."""

from typing import BinaryIO

from numpy.lib.format import MAGIC_PREFIX

from batchplan.data.formats.arrays import ArrayFormat, ArrayHeader
from batchplan.errors import InputError
from batchplan.files.npy import read_npy_header
from batchplan.files.remote import ShardPath


def read_header(file: BinaryIO, path: ShardPath) -> ArrayHeader:
    start = file.read(len(MAGIC_PREFIX))
    if start != MAGIC_PREFIX:
        raise InputError(
            f"{path}: got a file that begins with {start!r}, expected an NPY file "
            f"({MAGIC_PREFIX!r}); save the matrix with np.save"
        )
    file.seek(0)
    shape, fortran, dtype = read_npy_header(file)
    return ArrayHeader(shape, dtype, fortran)


FORMAT = ArrayFormat("NPY", read_header)
