"""Files of several matrices with names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np

from batchplan.data.dtypes import NARROW
from batchplan.data.formats.arrays import ArrayFormat, ArrayHeader, ArraySource, opened
from batchplan.data.wanted import Wanted, shown
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

_PAIRS = (("x", "y"), ("anchor", "positive"))  # names that say which side they are


class Tensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        kind: its dtype in the words of the format.
        shape: its shape.
        start, stop: the bytes of its numbers.
        header: how to read it; None for a dtype that NumPy lacks.
    """

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int
    header: ArrayHeader | None


@dataclass(frozen=True)
class TensorFormat:
    """Files of several matrices, which x_column and y_column name.

    Attributes:
        name: of the format in messages.
        read_tensors: reads the headers of an open file, checked against its size. It may raise any
            exception if the bytes are no such file.
    """

    has_columns: ClassVar = False
    name: str
    read_tensors: Callable[[BinaryIO, ShardPath], dict[str, Tensor]]

    def sources(
        self, paths: Sequence[ShardPath], sides: Sequence[str], wanted: Wanted
    ) -> list[ArraySource]:
        """Read the headers of these files, and return the source of each side.

        Raises:
            InputError: as `ArraySource`; a named matrix is missing, or it is unclear which to take.
        """
        if len(sides) == 2:  # else the ids may be of the other side
            Wanted(id=wanted.id).refuse(str(paths[0]))
        with opened(paths[0], self.name) as (file, _):
            tensors = self.read_tensors(file, paths[0])
        matrices = wanted.vectors(_dtypes(tensors))
        if not matrices and len(tensors) == 1:  # opening it says what is wrong
            matrices = list(tensors)
        names, mined = wanted.choose(matrices, sides, str(paths[0]), _shown(tensors), _PAIRS)
        sources: list[ArraySource] = []
        held = [*zip(sides, names, strict=False), *(("negatives", name) for name in mined)]
        for side, name in held:
            form = ArrayFormat(self.name, partial(self._read_header, name), f"tensor {name!r}")
            sources += form.sources(paths, (side,), Wanted())
        return sources

    def _read_header(self, name: str, file: BinaryIO, path: ShardPath) -> ArrayHeader:
        tensors = self.read_tensors(file, path)
        if (tensor := tensors.get(name)) is None:
            raise InputError(
                f"{path}: there is no tensor {name!r}, expected it in all shards of a side; "
                f"{_shown(tensors)}"
            )
        if tensor.header is None:
            raise InputError(
                f"{path}: tensor {name!r}: got {tensor.kind}, expected F16, BF16, F32 or I8"
            )
        file.seek(tensor.start)
        return tensor.header


def _dtypes(tensors: Mapping[str, Tensor]) -> dict[str, np.dtype[Any]]:
    """Return the dtypes of the matrices that may be embeddings."""
    headers = {name: one.header for name, one in tensors.items() if one.header}
    return {
        name: header.dtype
        for name, header in headers.items()
        if len(header.shape) == 2 and (header.dtype.kind == "f" or header.dtype in NARROW)
    }


def _shown(tensors: Mapping[str, Tensor]) -> str:
    names = [
        f"{name!r:.40} {item.kind:.10} {list(item.shape)!s:.40}" for name, item in tensors.items()
    ]
    return shown("tensors", names)
