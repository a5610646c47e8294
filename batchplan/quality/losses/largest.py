"""Keeps the largest values of each row and their columns; ties go to the lower column.

A value and its column make an int64 key that sorts by this rule. So no two keys tie, and the result
does not depend on the order in which values arrive. On the CPU a row has room for twice as many
keys as it keeps. Keys are appended; when the room is full, a selection drops the smaller half and
sets the floor that later values must reach. That one comparison rejects nearly all values, and the
others cost less than in a heap.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.threads import block_height, in_blocks

LOWEST = np.finfo(np.float32).min
_EMPTY = np.iinfo(np.int64).min
_SCAN = 64  # values compared together; most pieces hold nothing large enough
_ROWS_AT_ONCE = 1024  # rows of a tile that one thread takes
_FEWEST = 64  # room for keys; selecting among fewer would cost more than it saves


def key_room(count: int) -> int:
    """Return for how many keys a row needs room, to keep its ``count`` largest values."""
    return max(2 * count, _FEWEST)


class Largest:
    """The ``count`` largest values of each row.

    Attributes:
        arrays: for `put_in_row`: int64 (rows, room) keys, int64 (rows,) how many there are, and
            float32 (rows,) floors that a value must reach.
    """

    def __init__(self, rows: int, count: int):
        self.count = count
        keys = np.empty((rows, key_room(count)), np.int64)
        # With a count of 0, no value reaches the floor.
        floors = np.full(rows, LOWEST if count else np.inf, np.float32)
        self.arrays: tuple[NDArray[Any], ...] = keys, np.zeros(rows, np.int64), floors

    def offer(self, tile: torch.Tensor, first_column: int) -> None:
        """Add a float32 (rows, columns) tile; -inf is never kept."""
        values = tile.numpy()

        def work(start: int, stop: int) -> None:
            mine = (part[start:stop] for part in self.arrays)
            _offer(values[start:stop], first_column, self.count, *mine)

        in_blocks(work, len(values), block_height(len(values), _ROWS_AT_ONCE))

    def offer_keys(self, start: int, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Add the keys of another `Largest` to the rows from ``start`` on."""
        mine = (part[start : start + len(keys)] for part in self.arrays)
        _offer_keys(keys, counts, self.count, *mine)

    def sorted(self, start: int = 0, stop: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """float32 values and int64 columns, both (rows, count), best first, of rows start to stop.

        The end of rows that got fewer values is undefined.
        """
        keys, counts, _ = (part[start:stop] for part in self.arrays)
        keys = np.where(np.arange(keys.shape[1]) < counts[:, None], keys, _EMPTY)
        keys.sort(axis=1)
        return _decoded(torch.from_numpy(keys[:, ::-1][:, : self.count].copy()))


class KeyLargest:
    """Keeps the largest values of each row by `torch.topk`, on any device."""

    def __init__(self, rows: int, count: int, device: torch.device):
        self._keys = torch.full((rows, count), _EMPTY, dtype=torch.int64, device=device)

    def offer(self, tile: torch.Tensor, first_column: int) -> None:
        """As `Largest.offer`."""
        bits = (tile + 0.0).view(torch.int32)  # -0.0 becomes 0.0, with which it ties
        ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
        columns = torch.arange(first_column, first_column + tile.shape[1], device=tile.device)
        keys = (ordered << 32) | (0xFFFFFFFF - columns)
        both = torch.cat((self._keys, keys), dim=1)
        self._keys = both.topk(self._keys.shape[1], dim=1).values

    def sorted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Largest.sorted`."""
        return _decoded(self._keys)


def largest(rows: int, count: int, device: torch.device) -> Largest | KeyLargest:
    """Return what keeps the ``count`` largest values of rows; on the CPU `torch.topk` is slow."""
    return Largest(rows, count) if device.type == "cpu" else KeyLargest(rows, count, device)


def _decoded(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    columns = 0xFFFFFFFF - (keys & 0xFFFFFFFF)
    ordered = (keys >> 32).int()
    values = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).view(torch.float32)
    return values, columns


# These take the places of many values, since a call per value would take longer than the rest:
# numba counts references to each array argument.


@njit
def put_in_row(line, places, first_column, count, keys, counts, floors, row):  # type: ignore[no-untyped-def]
    """Keep each of the values ``line[places]`` if it is among the ``count`` largest of its row."""
    own, n, floor = keys[row], counts[row], floors[row]
    for place in places:
        value = line[place]
        if value >= floor:
            key = _key(value, first_column + place)
            # The floor is the value of the smallest key that the last selection kept.
            if value > floor or key > own[count - 1]:
                own[n] = key
                n += 1
                if n == own.size:
                    _select(own, count)
                    n = count
                    floor = _value(own[count - 1])
    counts[row] = n
    floors[row] = floor


@njit
def put_in_columns(line, places, row, count, keys, counts, floors):  # type: ignore[no-untyped-def]
    """Keep each of the values ``line[places]`` if it is among the largest of its column.

    ``row`` is the number of the line; the arrays are indexed by column.
    """
    for place in places:
        value = line[place]
        if value >= floors[place]:
            key = _key(value, row)
            if value > floors[place] or key > keys[place, count - 1]:
                n = counts[place]
                keys[place, n] = key
                n += 1
                if n == keys.shape[1]:
                    _select(keys[place], count)
                    n = count
                    floors[place] = _value(keys[place, count - 1])
                counts[place] = n


@njit
def _key(value, column):  # type: ignore[no-untyped-def]
    bits = np.int64(np.float32(value + np.float32(0)).view(np.int32))  # -0.0 becomes 0.0
    if bits < 0:
        bits ^= np.int64(0x7FFFFFFF)
    return (bits << 32) | (0xFFFFFFFF - column)


@njit
def _value(key):  # type: ignore[no-untyped-def]
    bits = key >> 32
    if bits < 0:
        bits ^= np.int64(0x7FFFFFFF)
    return np.int32(bits).view(np.float32)


@njit
def _select(keys, count):  # type: ignore[no-untyped-def]
    """Move the ``count`` largest keys to the front, the smallest of them last (Hoare 1961).

    The loop has no branch that depends on a key (Lomuto's partition with a swap each time), since
    half of such branches would be mispredicted.
    """
    low, high, wanted = 0, keys.size - 1, count - 1
    while low < high:
        middle = (low + high) >> 1
        first, last = min(keys[low], keys[high]), max(keys[low], keys[high])
        pivot = max(first, min(last, keys[middle]))
        if pivot == keys[low]:
            keys[low] = keys[high]
        elif pivot == keys[middle]:
            keys[middle] = keys[high]
        place: Any = low
        for k in range(low, high):
            key = keys[k]
            keys[k] = keys[place]
            keys[place] = key
            place += np.int64(key > pivot)
        keys[high] = keys[place]
        keys[place] = pivot
        if place == wanted:
            return
        if place < wanted:
            low = place + 1
        else:
            high = place - 1


@njit
def _offer(tile, first_column, count, keys, counts, floors):  # type: ignore[no-untyped-def]
    rows, width = tile.shape
    for row in range(rows):
        line = tile[row]
        for start in range(0, width, _SCAN):
            part = line[start : start + _SCAN]
            floor = floors[row]
            hits = 0
            for value in part:  # vectorised, since it has no branch
                hits += value >= floor
            if hits:
                places = np.nonzero(part >= floor)[0]
                put_in_row(part, places, first_column + start, count, keys, counts, floors, row)


@njit
def _offer_keys(new, new_counts, count, keys, counts, floors):  # type: ignore[no-untyped-def]
    for row in range(new.shape[0]):
        for key in new[row, : new_counts[row]]:
            value = _value(key)
            if value > floors[row] or (value == floors[row] and key > keys[row, count - 1]):
                keys[row, counts[row]] = key
                counts[row] += 1
                if counts[row] == keys.shape[1]:
                    _select(keys[row], count)
                    counts[row] = count
                    floors[row] = _value(keys[row, count - 1])
