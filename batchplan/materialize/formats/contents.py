"""The parts that all formats of a data set share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import pyarrow as pa


class ShardRows(NamedTuple):
    """The content of a file.

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
    """A finished file: its name, rows and bytes."""

    name: str
    num_rows: int
    size: int


@dataclass(frozen=True)
class OutputFormat:
    """How a data set is written.

    Attributes:
        name: the name of a file, from its number and the number of files in its folder.
        write: writes a shard to a new file; it may seek.
        check: raises an InputError for columns that the format cannot hold.
        index: the other files of a folder by name: their content, from the columns and the shards.
    """

    name: Callable[[int, int], str]
    write: Callable[[BinaryIO, ShardRows], None]
    check: Callable[[pa.Schema], None] = lambda _schema: None
    index: Callable[[pa.Schema, Sequence[Written]], dict[str, bytes]] = lambda _schema, _files: {}
