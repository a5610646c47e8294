"""The messages of Arrow IPC, whose metadata say how much a record batch takes when it is decoded.

Pyarrow does not tell that before it decodes. The metadata are flatbuffers: tables of fields by
number, as the files Message.fbs, File.fbs and Schema.fbs of the Arrow format declare them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

MAGIC = b"ARROW1"  # of files; streams have none
_PREFIX = b"\xff\xff\xff\xff"  # of messages since Arrow 0.15
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_BLOCK, _BUFFER = 24, 16  # bytes of an entry in lists of messages, and of buffers
_OLD = b"ARROW:experimental_compression"  # in the metadata of Arrow 0.17


class Message(NamedTuple):
    """A record batch, or the values of a dictionary.

    Attributes:
        rows: their number.
        decoded: bytes of the buffers.
        is_dictionary: whether it is a dictionary.
    """

    rows: int
    decoded: int
    is_dictionary: bool


class _Table:
    """A table of a flatbuffer, at a place in its bytes."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._number(place, 4, signed=True)

    @classmethod
    def root(cls, data: bytes) -> "_Table":
        return cls(data, int.from_bytes(data[:4], "little"))

    def number(self, field: int, size: int) -> int:
        """Return an integer of ``size`` bytes; 0 if it is left out."""
        place = self._at(field)
        return self._number(place, size, signed=True) if place else 0

    def table(self, field: int) -> "_Table | None":
        place = self._at(field)
        return _Table(self._data, place + self._number(place, 4)) if place else None

    def pairs(self, field: int, size: int) -> list[tuple[int, int]]:
        """Return the first two integers, of 8 bytes, of each struct of a list. ``size`` is the
        bytes of a struct."""
        if not (place := self._at(field)):
            return []
        start = place + self._number(place, 4)
        count = min(self._number(start, 4), len(self._data) // size)
        places = range(start + 4, start + 4 + count * size, size)
        return [(self._number(at, 8), self._number(at + 8, 8)) for at in places]

    def _at(self, field: int) -> int:
        """Return the place of a field; 0 if it is left out."""
        entry = 4 + 2 * field
        if entry >= self._number(self._fields, 2):
            return 0
        offset = self._number(self._fields + entry, 2)
        return self._place + offset if offset else 0

    def _number(self, place: int, size: int, signed: bool = False) -> int:
        if not 0 <= place <= len(self._data) - size:
            raise ValueError("the metadata of a message point outside of it")
        return int.from_bytes(self._data[place : place + size], "little", signed=signed)


def messages(stream: Any, is_file: bool) -> Iterator[Message]:
    """Yield the record batches and dictionaries of an open file, without decoding them.

    Args:
        stream: pyarrow.NativeFile of a file whose schema was read.
        is_file: whether it is an Arrow file, not a stream.

    Raises:
        ValueError: the metadata make no sense.
    """
    if is_file:
        size = stream.size()
        length = int.from_bytes(_read(stream, size - len(MAGIC) - 4, 4), "little")
        footer = _Table.root(_read(stream, size - len(MAGIC) - 4 - length, length))
        for field in (2, 3):
            for place, _ in footer.pairs(field, _BLOCK):
                yield from _message(stream, place)[0]
        return
    place, found = 0, _message(stream, 0)
    while found[1] > place:
        yield from found[0]
        place = found[1]
        found = _message(stream, place)


def _message(stream: Any, place: int) -> tuple[list[Message], int]:
    """Return the message at a place, none for a schema, and where the next one begins: there, at
    the end."""
    start = _read(stream, place, 8)
    begin = place + (8 if start[:4] == _PREFIX else 4)
    length = int.from_bytes(start[4:] if start[:4] == _PREFIX else start[:4], "little")
    if length == 0:
        return [], place
    data = _read(stream, begin, length)
    root = _Table.root(data)
    kind, body = root.number(1, 1), begin + length
    stop, batch = body + root.number(3, 8), root.table(2)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(1)
    if kind not in (_DICTIONARY, _BATCH) or batch is None:
        return [], stop
    decoded, coded = 0, batch.table(3) is not None or _OLD in data
    for offset, size in batch.pairs(2, _BUFFER):
        stated = -1
        if coded and size >= 8:  # before it, or -1 for one that is stored as it is
            stated = int.from_bytes(_read(stream, body + offset, 8), "little", signed=True)
        decoded += stated if stated >= 0 else size
    return [Message(batch.number(0, 8), decoded, kind == _DICTIONARY)], stop


def _read(stream: Any, place: int, size: int) -> bytes:
    if not 0 <= place <= stream.size():
        raise ValueError(f"byte {place} is outside of the file")
    stream.seek(place)
    return bytes(stream.read(size))
