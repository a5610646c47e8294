"""JSON lines: an object per row."""

from typing import BinaryIO

from batchplan.materialize.formats.contents import Format, Shard
from batchplan.materialize.joining import content, joined
from batchplan.materialize.json_text import check_columns, objects


def write(stream: BinaryIO, shard: Shard) -> None:
    for batch in shard.batches:
        stream.write(content(joined(objects(batch), b"\n")))


FORMAT = Format(lambda number, count: f"shard-{number:06d}.jsonl", write, check_columns)
