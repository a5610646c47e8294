"""WebDataset: tar files in which members with one name and several suffixes are a sample.

A row is ``000000042.json`` with all columns except bytes, which are separate members, such
as ``000000042.jpg`` for a column ``jpg``.
"""

import tarfile
from io import BytesIO
from typing import BinaryIO

import pyarrow as pa

from batchplan.data.arrow_types import is_bytes
from batchplan.errors import InputError
from batchplan.materialize import json_text
from batchplan.materialize.formats.contents import OutputFormat, ShardRows


def check(schema: pa.Schema) -> None:
    """Require names that can be suffixes for columns of bytes, and JSON types for the others."""
    json_text.check_columns(pa.schema([field for field in schema if not is_bytes(field.type)]))
    for name in [field.name for field in schema if is_bytes(field.type)]:
        if name != name.lower() or "/" in name or name == "json" or len(name.encode()) > 80:
            raise InputError(
                f"column {name!r}: contains bytes, so its name becomes the suffix of a file in the "
                "tar; expected lower case, without a slash, at most 80 bytes, and not json; rename "
                "it, or name the other columns with --column"
            )


def write(stream: BinaryIO, shard: ShardRows) -> None:
    number = shard.start
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for batch in shard.batches:
            members = _members(batch)
            for contents in zip(*members.values(), strict=True):
                for suffix, content in zip(members, contents, strict=True):
                    info = tarfile.TarInfo(f"{number:09d}.{suffix}")
                    info.size = len(content)
                    tar.addfile(info, BytesIO(content))
                number += 1


def _members(batch: pa.RecordBatch) -> dict[str, list[bytes]]:
    """Return the members of each row by their suffixes."""
    members = {}
    for name in [field.name for field in batch.schema if is_bytes(field.type)]:
        column = batch.column(name)
        if column.null_count:
            raise InputError(
                f"column {name!r}: contains nulls, expected bytes in each row; fill them, or name "
                "the other columns with --column"
            )
        members[name] = column.to_pylist()
    rest = batch.select([name for name in batch.schema.names if name not in members])
    return {**members, "json": json_text.objects(rest)}


FORMAT = OutputFormat(lambda number, count: f"shard-{number:06d}.tar", write, check)
