"""MDS, version 2, which `streaming.StreamingDataset` of mosaicml-streaming reads.

A shard is the number of samples, where each begins (uint32, from the start of the file), the
columns as JSON, and the samples. A sample is the sizes (uint32) of its columns of varying size,
then all columns in the order of their names. ``index.json`` lists the shards.
"""

import json
from collections.abc import Sequence
from itertools import compress
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from batchplan.data.arrow_types import is_bytes, is_text
from batchplan.errors import InputError
from batchplan.materialize import json_text
from batchplan.materialize.formats.contents import OutputFormat, ShardRows, Written

_MOST_BYTES = 1 << 32  # that offsets can hold


def check(schema: pa.Schema) -> None:
    """Require columns that MDS, or the JSON in it, can hold."""
    others = [field for field in schema if _encoding(field.type)[0] == "json"]
    json_text.check_columns(pa.schema(others))


def write(stream: BinaryIO, shard: ShardRows) -> None:
    config = json.dumps(_config(shard.schema), sort_keys=True).encode()
    data = 4 + 4 * (shard.num_rows + 1) + len(config)
    stream.seek(data)  # the start of the file depends on the samples
    sizes: list[int] = []
    for batch in shard.batches:
        samples = _samples(batch)
        sizes += map(len, samples)
        stream.writelines(samples)
    offsets = np.cumsum([data, *sizes])
    if offsets[-1] >= _MOST_BYTES:
        raise InputError(
            f"shard rows: {shard.num_rows} rows take {offsets[-1]} bytes, expected less than "
            f"{_MOST_BYTES}, which a shard of MDS can hold; give fewer with --shard-rows"
        )
    stream.seek(0)
    stream.write(np.array([shard.num_rows], "<u4").tobytes())
    stream.write(offsets.astype("<u4").tobytes())
    stream.write(config)


def index(schema: pa.Schema, files: Sequence[Written]) -> dict[str, bytes]:
    shards = [
        {
            "samples": file.num_rows,
            "raw_data": {"basename": file.name, "bytes": file.size, "hashes": {}},
            "zip_data": None,
            **_config(schema),
        }
        for file in files
    ]
    return {"index.json": json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode()}


def _config(schema: pa.Schema) -> dict[str, Any]:
    names = sorted(schema.names)
    encodings, sizes = zip(*(_encoding(schema.field(name).type) for name in names), strict=True)
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": names,
        "column_encodings": encodings,
        "column_sizes": sizes,
    }


def _encoding(data_type: pa.DataType) -> tuple[str, int | None]:
    """Return the name of a type in MDS, ``json`` for types that it lacks, and the bytes of each
    value, None if they vary."""
    if is_text(data_type):
        return "str", None
    if is_bytes(data_type) or pa.types.is_fixed_size_binary(data_type):
        return "bytes", None
    is_vector = pa.types.is_fixed_size_list(data_type) and data_type.list_size > 0
    number = _dtype(data_type.value_type if is_vector else data_type)
    if number is None:
        return "json", None
    if is_vector:
        count = int(data_type.list_size)
        return f"ndarray:{number.name}:{count}", count * number.itemsize
    return "int" if number == np.int64 else number.name, number.itemsize


def _dtype(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of numbers; None for other types."""
    if pa.types.is_floating(data_type):
        return np.dtype(f"float{data_type.bit_width}")
    return np.dtype(str(data_type)) if pa.types.is_integer(data_type) else None


def _samples(batch: pa.RecordBatch) -> list[bytes]:
    """Return the bytes of each row."""
    names = sorted(batch.schema.names)
    varies = [_encoding(batch.schema.field(name).type)[1] is None for name in names]
    columns = [_encoded(batch.column(name), name) for name in names]
    samples = []
    for values in zip(*columns, strict=True):
        sizes = map(len, compress(values, varies))
        samples.append(b"".join((*(size.to_bytes(4, "little") for size in sizes), *values)))
    return samples


def _encoded(column: pa.Array, name: str) -> list[bytes]:
    encoding, size = _encoding(column.type)
    if encoding == "json":
        return json_text.values(column)
    flat = column.flatten() if encoding.startswith("ndarray") else column
    if nulls := column.null_count or flat.null_count:
        raise InputError(
            f"column {name!r}: contains at least {nulls} nulls, which MDS cannot store; fill them, "
            "or name the other columns with --column"
        )
    if size is None:
        texts: list[bytes] = column.cast(pa.large_binary()).to_pylist()
        return texts
    numbers = flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return [line.tobytes() for line in numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)]


FORMAT = OutputFormat(lambda number, count: f"shard.{number:05d}.mds", write, check, index)
