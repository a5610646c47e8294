"""JSON lines: an object per row."""

from typing import BinaryIO

from batchplan.materialize.formats.contents import OutputFormat, ShardRows
from batchplan.materialize.json_text import check_columns, objects


def write(stream: BinaryIO, shard: ShardRows) -> None:
    for batch in shard.batches:
        stream.writelines(row + b"\n" for row in objects(batch))


FORMAT = OutputFormat(lambda number, count: f"shard-{number:06d}.jsonl", write, check_columns)
