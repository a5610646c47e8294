"""`Kind`: how files of one kind are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from batchplan.errors import InputError, ResourceError
from batchplan.files.reading import open_regular


@dataclass(frozen=True)
class Kind:
    """How files of one kind are read. Its functions may raise Arrow's exceptions, OSError and
    ValueError.

    Attributes:
        name: as messages call it.
        describe: the columns and the rows of a file.
        batches: all rows in order, given a file, the columns to read, and the most rows of a batch.
        merge: columns that hold the values of two files; None where they must be the same.
    """

    name: str
    describe: Callable[[Path], tuple[pa.Schema, int]]
    batches: Callable[[Path, pa.Schema, int], Iterator[pa.RecordBatch]]
    merge: Callable[[pa.Schema, pa.Schema], pa.Schema] | None = None

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turn errors of the body, which reads a file, into our own exceptions."""
        # Opened here first, so that errors of the system keep their messages.
        with open_regular(path, self.name) as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                raise InputError(f"{path}: got an empty file (0 bytes), expected {self.name}")
        try:
            yield
        except (InputError, ResourceError):
            raise
        except MemoryError as error:
            raise ResourceError(f"{path}: not enough memory to decode it") from error
        # Damage shows as many exceptions, from Arrow's own to OSError and UnicodeDecodeError.
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(". ")
            raise InputError(
                f"{path}: cannot be read as {self.name} ({reason:.300}); the file is damaged or of "
                "another kind: write or copy it again"
            ) from error
