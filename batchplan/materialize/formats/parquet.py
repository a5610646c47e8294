"""Parquet files."""

from typing import BinaryIO

import pyarrow.parquet as pq

from batchplan.materialize.formats.contents import OutputFormat, ShardRows


def write(stream: BinaryIO, shard: ShardRows) -> None:
    with pq.ParquetWriter(stream, shard.schema, write_page_checksum=True) as writer:
        for batch in shard.batches:
            writer.write_batch(batch)


FORMAT = OutputFormat(lambda number, count: f"shard-{number:06d}.parquet", write)
