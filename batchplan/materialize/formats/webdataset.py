"""WebDataset: tar files in which members with one name and several suffixes are a sample.

A row is ``000000042.json`` with all columns except those of bytes, which are separate members, such
as ``000000042.jpg`` for a column ``jpg``.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from batchplan.data.arrow_types import is_bytes
from batchplan.errors import InputError
from batchplan.materialize import json_text
from batchplan.materialize.formats.contents import OutputFormat, ShardRows
from batchplan.materialize.joining import content, fixed, joined, lengths_of, numbered
from batchplan.typing import Int64Array

_BLOCK = 512  # of tar: headers have this size, and content is padded to a multiple of it
_KEY_DIGITS = 9
_MOST_BYTES = 8 << 30  # that eleven octal digits can hold
# Where the fields of a header begin.
_SIZE, _CHECKSUM = 124, 148


def check(schema: pa.Schema) -> None:
    """Require names that can be suffixes for columns of bytes, and JSON types for the others."""
    json_text.check_columns(pa.schema([field for field in schema if not is_bytes(field.type)]))
    for field in schema:
        name = field.name
        if not is_bytes(field.type):
            continue
        if name != name.lower() or "/" in name or name == "json" or len(name.encode()) > 80:
            raise InputError(
                f"column {name!r}: holds bytes, so its name becomes the suffix of a file in the "
                "tar; expected lower case, without a slash, at most 80 bytes, and not json; rename "
                "it, or name the other columns with --column"
            )


def write(stream: BinaryIO, shard: ShardRows) -> None:
    start = shard.start
    for batch in shard.batches:
        keys = np.arange(start, start + len(batch))
        stream.write(content(joined(*_members(batch, keys))))
        start += len(batch)
    stream.write(bytes(2 * _BLOCK))


def _members(batch: pa.RecordBatch, keys: Int64Array) -> Iterator[pa.Array]:
    """Headers, contents and padding of the members of each row."""
    files = {field.name: field for field in batch.schema if is_bytes(field.type)}
    for name in files:
        column = batch.column(name)
        if column.null_count:
            raise InputError(
                f"column {name!r}: holds nulls, expected bytes in each row; fill them, or name the "
                "other columns with --column"
            )
        yield from _member(column.cast(pa.large_binary()), keys, name)
    rest = batch.select([name for name in batch.schema.names if name not in files])
    yield from _member(json_text.objects(rest), keys, "json")


def _member(contents: pa.Array, keys: Int64Array, suffix: str) -> Iterator[pa.Array]:
    sizes = lengths_of(contents)
    if sizes.max() >= _MOST_BYTES:
        raise InputError(f"column {suffix!r}: a value of {sizes.max()} bytes, too large for tar")
    yield fixed(_headers(keys, sizes, suffix))
    yield contents
    padding = pa.array([bytes(size) for size in range(_BLOCK)], pa.large_binary())
    yield padding.take(pa.array(-sizes % _BLOCK))


def _headers(keys: Int64Array, sizes: Int64Array, suffix: str) -> NDArray[np.uint8]:
    """uint8 (n, 512): the headers of members with these names and sizes.

    They are those of `tarfile`, which would take 50 microseconds for each.
    """
    info = tarfile.TarInfo(f"{0:0{_KEY_DIGITS}}.{suffix}")
    first = np.frombuffer(info.tobuf(tarfile.USTAR_FORMAT, "utf-8"), np.uint8)
    headers = np.tile(first, (len(keys), 1))
    headers[:, :_KEY_DIGITS] = numbered(keys, _KEY_DIGITS)
    headers[:, _SIZE : _SIZE + 11] = numbered(sizes, 11, base=8)
    headers[:, _CHECKSUM : _CHECKSUM + 8] = ord(" ")  # which is how the sum counts it
    headers[:, _CHECKSUM : _CHECKSUM + 6] = numbered(headers.sum(1, dtype=np.int64), 6, base=8)
    headers[:, _CHECKSUM + 6] = 0
    return headers


FORMAT = OutputFormat(lambda number, count: f"shard-{number:06d}.tar", write, check)
