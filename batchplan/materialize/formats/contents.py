"""What every format of a data set writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import pyarrow as pa

ROW_COLUMN = "batchplan_row"
"""The column of the row number that each row has in the data, int64."""


class Shard(NamedTuple):
    """What a file is to hold.

    Attributes:
        schema: the columns, the last of which is `ROW_COLUMN`.
        num_rows: its rows.
        start: rows in the shards before it in its folder.
        batches: its rows in order, a few megabytes at a time; they can be read once.
    """

    schema: pa.Schema
    num_rows: int
    start: int
    batches: Iterable[pa.RecordBatch]


class Written(NamedTuple):
    """A file that is written: its name, rows and bytes."""

    name: str
    num_rows: int
    size: int


@dataclass(frozen=True)
class Format:
    """How a data set is written.

    Attributes:
        name: the name of a file, from its number and how many there are in its folder.
        write: puts a shard into a new file; it may go back in the stream.
        check: refuses columns that the format has no room for, with an InputError.
        index: the other files of a folder by name: their content, from the columns and the shards.
    """

    name: Callable[[int, int], str]
    write: Callable[[BinaryIO, Shard], None]
    check: Callable[[pa.Schema], None] = lambda _schema: None
    index: Callable[[pa.Schema, Sequence[Written]], dict[str, bytes]] = lambda _schema, _files: {}
