"""Arrow IPC: files (Feather), and streams as `datasets` saves them. They are mapped."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from batchplan.data.formats.arrow_messages import MAGIC, messages
from batchplan.data.formats.tables import TableFile, TableFormat
from batchplan.data.proportion import require_decodable
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

# Of streams; without it, one may have lost its last rows. Before Arrow 0.15, messages began without
# the first four bytes.
_END = b"\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def open_table(stream: pa.NativeFile, path: ShardPath) -> Iterator[TableFile]:
    reader = _reader(stream)
    schema, is_file = reader.schema, isinstance(reader, pa.ipc.RecordBatchFileReader)
    num_rows = dictionaries = 0
    for message in messages(stream, is_file):  # a batch is decoded as a whole
        if message.is_dictionary:  # all are kept
            dictionaries += message.decoded
        else:
            num_rows += message.rows
        most = max(message.decoded, dictionaries)
        require_decodable(most, stream.size(), f"{path}: record batch of {message.rows} rows")

    def batches(columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for batch in _batches(stream, path, [schema.get_field_index(name) for name in columns]):
            batch.validate(full=True)  # wrong offsets would be followed
            for start in range(0, len(batch), rows):
                yield batch.slice(start, rows)

    yield TableFile(schema, num_rows, batches)


def _batches(stream: Any, path: ShardPath, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield all batches with only these columns, so that others are not decompressed."""
    reader = _reader(stream, included_fields=list(columns))
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from map(reader.get_batch, range(reader.num_record_batches))
        return
    yield from reader
    end, size = stream.tell(), stream.size()
    stream.seek(0)
    mark = _END if stream.read(4) == _END[:4] else _END[4:]
    stream.seek(max(0, end - len(mark)))
    if end != size or stream.read() != mark:
        raise InputError(
            f"{path}: the stream ends at byte {end} of {size}, or without the mark of its end, so "
            "rows may be missing; write or copy it again"
        )


def _reader(stream: Any, **options: Any) -> Any:
    stream.seek(0)
    is_file = stream.read(len(MAGIC)) == MAGIC
    stream.seek(0)
    read = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return read(stream, options=pa.ipc.IpcReadOptions(**options))


FORMAT = TableFormat("Arrow", open_table, mapped=True)
