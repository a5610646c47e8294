"""Parquet shards."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchplan.data.formats.tables import TableFile, TableFormat
from batchplan.data.proportion import most_decoded, require_decodable
from batchplan.errors import InputError
from batchplan.files.remote import ShardPath

_SMALL = 32 << 20  # bytes of a file whose column chunks may be read as a whole
_BYTES = 16 << 20  # decoded at a time, of each column; a row of lists may have any number
_LONG = 1 << 10  # bytes of a text that may be decoded as often as it is repeated
_TEXTS = ("NONE", "UTF8", "JSON", "ENUM", "BSON")  # what byte arrays may be, besides decimals


@contextmanager
def open_table(stream: pa.NativeFile, path: ShardPath) -> Iterator[TableFile]:
    # A small read buffer, so that column chunks need not be in memory as a whole. Small files go
    # without: Arrow enlarges the buffer to the size that a page states, up to 2 GB if damaged.
    # A request to an object store is worth more bytes.
    least = 1 << 20 if isinstance(path, Path) else 8 << 20
    how = {
        "pre_buffer": False, "page_checksum_verification": True,
        "buffer_size": 0 if stream.size() < _SMALL else least,
    }  # fmt: skip
    try:
        with pq.ParquetFile(stream, **how) as file:
            meta = file.metadata
            groups = [*map(meta.row_group, range(meta.num_row_groups))]
            for number, group in enumerate(groups):
                # The stated size is of encoded values, before a codec shrinks them.
                require_decodable(
                    group.total_byte_size, stream.size(), f"{path}: row group {number}"
                )

            def batches(columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
                most, texts = _layout(file, stream, columns, isinstance(path, Path), how)
                # A small file may have a long text many times, so these stay in dictionaries. Of
                # other texts not, as Arrow keeps the dictionary of all that a row group has had.
                coded = pq.ParquetFile(stream, metadata=meta, read_dictionary=texts, **how)
                used = coded if texts else file
                for batch in used.iter_batches(min(rows, most), columns=columns):
                    batch.validate(full=True)  # texts that are no UTF-8 would be read
                    yield batch

            # Some files state no rows but in their row groups.
            yield TableFile(file.schema_arrow, sum(group.num_rows for group in groups), batches)
    except pa.ArrowInvalid as error:
        # Before pyarrow 26, a null among lists of a fixed size fails so (apache/arrow#35692).
        if re.search(r"all lists to be of size=\d+ but index \d+ had size=0", str(error)):
            raise InputError(
                f"{path}: got null, expected a vector in each row; fill or drop the row "
                "(pyarrow 26 says which)"
            ) from error
        raise


def _layout(
    file: pq.ParquetFile, stream: pa.NativeFile, columns: Sequence[str], local: bool, how: Any
) -> tuple[int, list[str]]:
    """Return the rows of which each column takes `_BYTES`, by the metadata, and the columns of text
    or bytes to read as dictionaries, since long texts may repeat out of proportion to the file.

    Raises:
        OSError: a column is encrypted. Its metadata would end the process, so a row is read first:
            of each group, or at a URL, where each read is a request, of the first.
    """
    meta = file.metadata
    leaves = {
        number: leaf
        for number, leaf in enumerate(map(meta.schema.column, range(meta.num_columns)))
        if leaf.path.partition(".")[0] in columns
    }
    texts = {  # in no lists or structs, where Arrow cannot keep dictionaries
        leaf.path: number
        for number, leaf in leaves.items()
        if leaf.path in columns
        and leaf.physical_type == "BYTE_ARRAY"
        and leaf.converted_type in _TEXTS
    }
    coded = pq.ParquetFile(stream, metadata=meta, read_dictionary=[*texts], **how)
    most, long = 1, set()
    for place in range(meta.num_row_groups):
        group, first = meta.row_group(place), None
        if local or not place:
            first = next(coded.iter_batches(1, row_groups=[place], columns=columns), None)
        for number, leaf in leaves.items() if group.num_rows else ():
            chunk, width = group.column(number), max(8, leaf.length or 0)
            if number in texts.values():
                shown = None if first is None else first.column(leaf.path)
                longest = _longest(shown, stream, chunk)
                if longest > _LONG and longest * chunk.num_values > most_decoded(stream.size()):
                    long.add(leaf.path)
                else:
                    width = max(width, longest)
            elif leaf.physical_type == "BYTE_ARRAY":  # each value may be the longest one
                width = max(width, _dictionary_bytes(stream, chunk) // 4)
            most = max(most, width * -(-chunk.num_values // group.num_rows))
    return max(1, _BYTES // most), sorted(long)


def _longest(first: pa.Array | None, stream: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> int:
    """Return the most bytes of a text in the dictionary of a chunk; ``first`` is its first row, if
    known, with all of the dictionary unless the file is odd."""
    size = _dictionary_bytes(stream, chunk)
    if size <= _LONG or first is None or not pa.types.is_dictionary(first.type):
        return size
    lengths = pc.binary_length(first.dictionary)
    whole = (pc.sum(lengths).as_py() or 0) + 4 * len(lengths) == size
    return pc.max(lengths).as_py() if whole else size


def _dictionary_bytes(stream: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> int:
    """Return the size of a chunk's dictionary, decoded, by the header of its page; 0 without one.

    The header is a struct of Thrift's compact protocol, that begins with the kind of the page, 2
    for a dictionary, and its size.
    """
    stream.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
    found = re.match(rb"\x15\x04\x15([\x80-\xff]{0,4}[\0-\x7f])", stream.read(8), re.DOTALL)
    if found is None:
        return 0
    zigzag: int = sum((byte & 127) << 7 * place for place, byte in enumerate(found[1]))
    return zigzag >> 1


FORMAT = TableFormat("Parquet", open_table)
