"""Arrow files of `datasets`, which ``datasets.load_from_disk`` opens: Arrow streams, and two JSON
files that name them."""

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from batchplan.materialize.formats.contents import OutputFormat, ShardRows, Written


def write(stream: BinaryIO, shard: ShardRows) -> None:
    with pa.ipc.new_stream(stream, shard.schema) as writer:
        for batch in shard.batches:
            writer.write_batch(batch)


def index(schema: pa.Schema, files: Sequence[Written]) -> dict[str, bytes]:
    """Return the files that ``datasets.Dataset.save_to_disk`` writes next to the data."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": file.name} for file in files],
        "_fingerprint": None,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    info = {"citation": "", "description": "", "features": None, "homepage": "", "license": ""}
    return {
        "state.json": json.dumps(state, indent=2).encode(),
        "dataset_info.json": json.dumps(info, indent=2).encode(),
    }


FORMAT = OutputFormat(
    lambda number, count: f"data-{number:05d}-of-{count:05d}.arrow", write, index=index
)
