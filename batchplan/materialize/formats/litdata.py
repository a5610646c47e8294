"""Parquet files with the index that LitData's `ParquetLoader` reads.

LitData can make such an index, but lists the files in no particular order.
"""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from batchplan.materialize.formats import parquet
from batchplan.materialize.formats.contents import OutputFormat, Written


def index(schema: pa.Schema, files: Sequence[Written]) -> dict[str, bytes]:
    """Return the index that ``litdata.index_parquet_dataset`` writes, without a time."""
    chunks = [
        {"chunk_bytes": file.size, "chunk_size": file.num_rows, "dim": None, "filename": file.name}
        for file in files
    ]
    unset = ("compression", "chunk_size", "chunk_bytes", "data_spec", "types", "encryption")
    config: dict[str, Any] = dict.fromkeys(unset)
    config |= {"data_format": [str(field.type) for field in schema], "item_loader": "ParquetLoader"}
    document = {"chunks": chunks, "config": config, "updated_at": "0"}
    return {"index.json": json.dumps(document, indent=2).encode()}


FORMAT = OutputFormat(parquet.FORMAT.name, parquet.write, index=index)
