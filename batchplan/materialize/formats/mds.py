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
    others = [field for field in schema if _encoding(field.type) == "json"]
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
    encodings = {name: _encoding(schema.field(name).type) for name in sorted(schema.names)}
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": list(encodings),
        "column_encodings": list(encodings.values()),
        "column_sizes": [_size(schema.field(name).type) for name in encodings],
    }


def _encoding(data_type: pa.DataType) -> str:
    """Return the name of a type in MDS; ``json`` for types that it lacks."""
    if data_type == pa.int64():
        return "int"
    if (scalar := _dtype(data_type)) is not None:
        return scalar.name
    if is_text(data_type):
        return "str"
    if is_bytes(data_type) or pa.types.is_fixed_size_binary(data_type):
        return "bytes"
    if (number := _number(data_type)) is not None:
        return f"ndarray:{number.name}:{data_type.list_size}"
    return "json"


def _size(data_type: pa.DataType) -> int | None:
    """Return the bytes of each value of a type; None if they vary."""
    if (number := _number(data_type)) is not None:
        return number.itemsize * int(data_type.list_size)
    scalar = _dtype(data_type)
    return None if scalar is None else scalar.itemsize


def _number(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the type of the numbers in vectors of one length; None for other types."""
    if not pa.types.is_fixed_size_list(data_type) or data_type.list_size < 1:
        return None
    return _dtype(data_type.value_type)


def _dtype(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of numbers; None for other types."""
    if pa.types.is_floating(data_type):
        return np.dtype(f"float{data_type.bit_width}")
    return np.dtype(str(data_type)) if pa.types.is_integer(data_type) else None


def _samples(batch: pa.RecordBatch) -> list[bytes]:
    """Return the bytes of each row."""
    names = sorted(batch.schema.names)
    varies = [_size(batch.schema.field(name).type) is None for name in names]
    columns = [_encoded(batch.column(name), name) for name in names]
    samples = []
    for values in zip(*columns, strict=True):
        sizes = map(len, compress(values, varies))
        samples.append(b"".join((*(size.to_bytes(4, "little") for size in sizes), *values)))
    return samples


def _encoded(column: pa.Array, name: str) -> list[bytes]:
    encoding = _encoding(column.type)
    if encoding == "json":
        return json_text.values(column)
    flat = column.flatten() if encoding.startswith("ndarray") else column
    if nulls := column.null_count or flat.null_count:
        raise InputError(
            f"column {name!r}: contains at least {nulls} nulls, which MDS cannot store; fill them, "
            "or name the other columns with --column"
        )
    if _size(column.type) is None:
        texts: list[bytes] = column.cast(pa.large_binary()).to_pylist()
        return texts
    numbers = flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return [line.tobytes() for line in numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)]


FORMAT = OutputFormat(lambda number, count: f"shard.{number:05d}.mds", write, check, index)
