"""Turns what readers of tables raise into our own exceptions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from batchplan.errors import InputError, ResourceError
from batchplan.files.kinds import DECRYPT, other_kind
from batchplan.files.reading import open_regular
from batchplan.files.remote import ShardPath


@contextmanager
def decoding(path: ShardPath, kind: str) -> Iterator[None]:
    """Turn what a reader raises in the body into our own exceptions, which name the file.

    Raises:
        InputError: the file is missing, empty or damaged, or is not of this kind.
        ResourceError: there is not enough memory.
    """
    if isinstance(path, Path):
        with open_regular(path, kind) as stream:  # first, so that system errors keep their messages
            size = os.fstat(stream.fileno()).st_size
    else:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the URL")
        size = path.size
    if size == 0:
        raise InputError(f"{path}: got an empty file (0 bytes), expected {kind}")
    try:
        yield
    except (InputError, ResourceError):
        raise
    except MemoryError as error:
        raise ResourceError(f"{path}: not enough memory to decode it") from error
    # A damaged file may raise any of these, including UnicodeDecodeError.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(". ")
        if (other := other_kind(path, kind)) is not None:
            raise other from error
        mend = "the file is damaged or of another kind: write or copy it again"
        if isinstance(error, NotImplementedError):
            mend = f"pyarrow {pa.__version__} lacks this: write it with other types or encodings"
        elif "ecrypt" in reason:
            mend = DECRYPT
        raise InputError(f"{path}: cannot be read as {kind} ({reason:.200}); {mend}") from error
