"""Numbers texts, equal ones the same. Hashes find candidates, comparisons confirm them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from batchplan.kernels import loaded, njit
from batchplan.typing import Int32Array

_FIRST_SLOTS = 1 << 16
_AT_ONCE = 64  # texts whose slots are loaded together, as each is a wait for memory
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits all over: 2^64 over the golden ratio


def text_numbers(parts: Sequence[pa.Array]) -> Int32Array:
    """Return a number for each text of all parts in turn, from 0 in the order of first appearance.

    The texts are read where Arrow has them, and not copied.

    Args:
        parts: arrays of string or large_string, without nulls; fewer than 2^31 texts.
    """
    parts = [part for part in parts if len(part)]
    counts = np.array([len(part) for part in parts], np.int64)
    wide = np.array([pa.types.is_large_string(part.type) for part in parts], np.bool_)
    buffers = [part.buffers() for part in parts]
    texts = [0 if own[2] is None else own[2].address for own in buffers]
    offsets = [own[1].address for own in buffers] + (4 << wide) * [part.offset for part in parts]
    places = np.stack((np.array(texts, np.int64), np.asarray(offsets, np.int64)))
    numbers: Int32Array = _numbers(places, wide, np.append(0, np.cumsum(counts)))
    return numbers


@njit
def _numbers(places, wide, firsts):  # type: ignore[no-untyped-def]
    """`text_numbers` of parts: the addresses of their texts and offsets (2, P), whether offsets
    have 64 bits (P,), and the number of their first text (P + 1,)."""
    out = np.empty(firsts[-1], np.int32)
    table, count = np.zeros(_FIRST_SLOTS, np.uint64), 0
    tags, near = np.empty((2, _AT_ONCE), np.uint64)
    starts, sizes = np.empty((2, _AT_ONCE), np.int64)
    for part in range(wide.size):
        for first in range(firsts[part], firsts[part + 1], _AT_ONCE):
            some = min(_AT_ONCE, firsts[part + 1] - first)
            while 4 * (count + some) >= 3 * table.size:
                table = _larger(table)
            mask = np.uint64(table.size - 1)
            for k in range(some):
                starts[k], sizes[k] = _text(places, wide, part, first + k - firsts[part])
                tags[k] = _hash(starts[k], sizes[k]) >> np.uint64(32)
            for k in range(some):
                near[k] = table[tags[k] & mask]
            for k in range(some):
                tag, slot, found = tags[k], tags[k] & mask, -1
                while found < 0 and table[slot] > 0:
                    if table[slot] >> np.uint64(32) == tag:
                        # The lower half of a slot is one more than the place of its first text.
                        place = np.int64(table[slot] & np.uint64(0xFFFFFFFF)) - 1
                        if _is_text(place, starts[k], sizes[k], places, wide, firsts):
                            found = out[place]
                    slot = (slot + np.uint64(1)) & mask
                if found < 0:
                    table[slot] = (tag << np.uint64(32)) | np.uint64(first + k + 1)
                    found, count = count, count + 1
                out[first + k] = found
    return out


@njit
def _text(places, wide, part, k):  # type: ignore[no-untyped-def]
    """Return the address and the bytes of a text of a part."""
    offsets = places[1, part]
    if wide[part]:
        start = loaded(offsets + 8 * k, np.int64(0))
        stop = loaded(offsets + 8 * k + 8, np.int64(0))
    else:
        start = np.int64(loaded(offsets + 4 * k, np.int32(0)))
        stop = np.int64(loaded(offsets + 4 * k + 4, np.int32(0)))
    return places[0, part] + start, stop - start


@njit
def _is_text(place, start, size, places, wide, firsts):  # type: ignore[no-untyped-def]
    """Return whether the text at a place of all is the one at an address."""
    low, high = 0, wide.size
    while high - low > 1:
        middle = (low + high) // 2
        if firsts[middle] <= place:
            low = middle
        else:
            high = middle
    first, length = _text(places, wide, low, place - firsts[low])
    if length != size:
        return False
    for k in range(0, size - 8, 8):
        if loaded(first + k, np.uint64(0)) != loaded(start + k, np.uint64(0)):
            return False
    return _last(first, size) == _last(start, size)


@njit
def _hash(start, size):  # type: ignore[no-untyped-def]
    """Return 64 bits of a text."""
    mixed = np.uint64(size)
    for k in range(0, size - 8, 8):
        mixed = (mixed ^ loaded(start + k, np.uint64(0))) * _MIX
        mixed ^= mixed >> np.uint64(32)
    mixed = (mixed ^ _last(start, size)) * _MIX
    return mixed ^ (mixed >> np.uint64(32)) * _MIX


@njit
def _last(start, size):  # type: ignore[no-untyped-def]
    """Return the last 8 bytes of a text, or all if it has fewer."""
    if size >= 8:
        return loaded(start + size - 8, np.uint64(0))
    last = np.uint64(0)
    for k in range(size):
        last = (last << np.uint64(8)) | np.uint64(loaded(start + k, np.uint8(0)))
    return last


@njit
def _larger(table):  # type: ignore[no-untyped-def]
    """Return a table of twice the slots, with the same texts."""
    out = np.zeros(2 * table.size, np.uint64)
    mask = np.uint64(out.size - 1)
    for entry in table:
        if entry > 0:
            slot = (entry >> np.uint64(32)) & mask
            while out[slot] > 0:
                slot = (slot + np.uint64(1)) & mask
            out[slot] = entry
    return out
