"""Puts rows that must not meet into different batches, without vectors.

`filled` makes batches of a random order: a row that may not join a batch waits for the next one.
`mended` moves single rows of given batches, as `filled` leaves a few of them, and the repair of
planned batches too. Where some must meet, both leave few of these pairs: rows of one document that
are more than the batches are spread evenly.
"""

from typing import NamedTuple

import numpy as np

from batchplan.data.answers import distinct
from batchplan.guard.apart import Apart, apart
from batchplan.kernels import njit
from batchplan.typing import Int64Array

_WAITING = 1 << 14  # waiting rows that a batch looks at, at most
_TRIES, _TRIED = 64, 1 << 18  # places to move a row to; comparisons of rows for them
_PATIENCE, _WORK = 2048, 1 << 24  # steps without a better state; comparisons of all steps
_NOISE = 0.1  # share of the steps that take any place, even if that is worse
_SCANNED = 256  # rows of a batch that are compared faster than looked up
_KEYS, _MOST_ASKED = 256, 16  # answers of a row, and of all rows on average, that are looked up
_TWICE = 1 << 20  # a row that meets itself counts as this many conflicts


def filled(
    rows: Int64Array, offsets: Int64Array, separate: Apart, generator: np.random.Generator
) -> tuple[Int64Array, int]:
    """Make batches of the same sizes with the rows in about the same order, in which few rows must
    be separate.

    Args:
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
        separate: of all N rows.
        generator: draws the places of rows that fit nowhere.

    Returns:
        As `mended`.
    """
    if len(distinct(rows)) < len(rows):  # a batch must not have a row twice
        numbers = np.arange(max(separate.codes.shape[1], len(separate.spans)))
        codes = np.concatenate((separate.codes.reshape(-1, len(numbers)), numbers[None]))
        separate = separate._replace(codes=codes)
    possible = _possible(rows, len(offsets) - 1, separate)
    rows, forced = _fill(rows, offsets, possible, *_stamps(possible))
    rows, left = _mended(rows, offsets, possible, generator, None, forced)
    return (rows, left) if possible is separate else mended(rows, offsets, separate, generator)


def mended(
    rows: Int64Array,
    offsets: Int64Array,
    separate: Apart,
    generator: np.random.Generator,
    kinds: Int64Array | None = None,
) -> tuple[Int64Array, int]:
    """Exchange rows between batches until none must be separate, or further steps hardly help.

    Args:
        rows, offsets, separate, generator: as `filled` takes them.
        kinds: int64 (N,), only rows of the same kind are exchanged; None, or (0,), if there is one.

    Returns:
        The new rows, and the number of pairs of rows of a batch that must be separate.
    """
    flagged = _flagged(rows, offsets, separate, *_stamps(separate))
    return _mended(rows, offsets, separate, generator, kinds, flagged)


def _mended(
    rows: Int64Array,
    offsets: Int64Array,
    separate: Apart,
    generator: np.random.Generator,
    kinds: Int64Array | None,
    flagged: Int64Array,
) -> tuple[Int64Array, int]:
    """`mended`, if each pair of rows that must be separate has a row at a ``flagged`` place."""
    if not len(flagged) or len(offsets) == 2:
        return rows, _count(rows, offsets, separate, flagged)
    rows = rows.copy()
    size = int(np.diff(offsets).max())
    tries = max(8, min(_TRIES, _TRIED // size))
    kinds = np.empty(0, np.int64) if kinds is None else kinds
    meetings = _meetings(rows, size, separate)
    if _mend(rows, offsets, separate, kinds, flagged, generator, tries, meetings):
        return rows, 0
    flagged = _flagged(rows, offsets, separate, *_stamps(separate))
    return rows, _count(rows, offsets, separate, flagged)


def _possible(rows: Int64Array, count: int, separate: Apart) -> Apart:
    """Return what ``count`` batches may separate. Of more rows with one code, each ``count`` get a
    code of their own, and a document of more rows may meet any other row."""
    codes, documents = separate.codes.copy(), separate.documents.copy()
    for own in codes:
        many = np.bincount(own[rows][own[rows] >= 0], minlength=1) > count
        if many.any():
            chosen = rows[(own[rows] >= 0) & many[own[rows]]]
            order = np.argsort(own[chosen], kind="stable")
            grouped = own[chosen[order]]
            rank = np.arange(len(order)) - np.searchsorted(grouped, grouped)
            first = 1 + int(own.max())
            parts = np.unique(grouped * len(rows) + rank // count, return_inverse=True)[1]
            own[chosen[order]] = first + parts
    met = documents[documents >= 0]
    if len(met):
        many = np.bincount(met) > count
        documents[(documents >= 0) & many[documents]] = -1
    changed = (codes != separate.codes).any() or (documents != separate.documents).any()
    return separate._replace(codes=codes, documents=documents) if changed else separate


def _stamps(separate: Apart) -> tuple[Int64Array, ...]:
    """Where the stamps of each array of codes start; the last batch with each code; with each
    document; and with an anchor that each document answers."""
    sizes = [1 + int(own.max(initial=-1)) for own in separate.codes]
    stamps = np.full(sum(sizes), -1, np.int64)
    width = 1 + int(max(separate.documents.max(initial=-1), separate.answers.max(initial=-1)))
    return np.cumsum([0, *sizes]), stamps, *np.full((2, width), -1, np.int64)


@njit
def _fits(row, batch, separate, starts, stamps, held, asked):  # type: ignore[no-untyped-def]
    """Return whether a row may join the rows that a batch has."""
    for c in range(len(separate.codes)):
        code = separate.codes[c, row]
        if code >= 0 and stamps[starts[c] + code] == batch:
            return False
    if not separate.spans.size:
        return True
    for c in range(separate.documents.shape[0]):
        document = separate.documents[c, row]
        if document >= 0 and asked[document] == batch:
            return False
    for place in range(separate.spans[row, 0], separate.spans[row, 1]):
        if held[separate.answers[place]] == batch:
            return False
    return True


@njit
def _join(row, batch, separate, starts, stamps, held, asked):  # type: ignore[no-untyped-def]
    """Note that a batch has a row."""
    for c in range(len(separate.codes)):
        if separate.codes[c, row] >= 0:
            stamps[starts[c] + separate.codes[c, row]] = batch
    if separate.spans.size:
        for c in range(separate.documents.shape[0]):
            if separate.documents[c, row] >= 0:
                held[separate.documents[c, row]] = batch
        for place in range(separate.spans[row, 0], separate.spans[row, 1]):
            asked[separate.answers[place]] = batch


@njit
def _fill(rows, offsets, separate, starts, stamps, held, asked):  # type: ignore[no-untyped-def]
    """`filled` before the last rows, which fit nowhere, are moved; and the places of these."""
    out, forced, count = np.empty_like(rows), np.empty_like(rows), 0
    following = np.full(rows.size, -1, np.int64)  # a list of the places in ``rows`` that wait
    first, last, cursor = -1, -1, 0
    for batch in range(offsets.size - 1):
        place, stop = offsets[batch], offsets[batch + 1]
        before, waiting, seen = -1, first, 0
        while waiting >= 0 and place < stop and seen < _WAITING:
            after = following[waiting]
            if _fits(rows[waiting], batch, separate, starts, stamps, held, asked):
                _join(rows[waiting], batch, separate, starts, stamps, held, asked)
                out[place] = rows[waiting]
                place += 1
                first = after if before < 0 else first
                last = before if after < 0 else last
                if before >= 0:
                    following[before] = after
            else:
                before = waiting
            waiting = after
            seen += 1
        while cursor < rows.size and place < stop:
            if _fits(rows[cursor], batch, separate, starts, stamps, held, asked):
                _join(rows[cursor], batch, separate, starts, stamps, held, asked)
                out[place] = rows[cursor]
                place += 1
            else:
                first = cursor if first < 0 else first
                if last >= 0:
                    following[last] = cursor
                last = cursor
            cursor += 1
        while place < stop:  # only rows that do not fit are left
            out[place], forced[count] = rows[first], place
            count += 1
            place, first = place + 1, following[first]
            last = last if first >= 0 else -1
    return out, forced[:count].copy()


@njit
def _flagged(rows, offsets, separate, starts, stamps, held, asked):  # type: ignore[no-untyped-def]
    """The places of rows that must not meet an earlier row of their batch, rising."""
    found = np.empty(rows.size, np.int64)
    count = 0
    for batch in range(offsets.size - 1):
        for place in range(offsets[batch], offsets[batch + 1]):
            if not _fits(rows[place], batch, separate, starts, stamps, held, asked):
                found[count] = place
                count += 1
            _join(rows[place], batch, separate, starts, stamps, held, asked)
    return found[:count].copy()


@njit
def _count(rows, offsets, separate, flagged):  # type: ignore[no-untyped-def]
    count = 0
    for place in flagged:
        start = offsets[np.searchsorted(offsets, place, side="right") - 1]
        for other in range(start, place):
            count += apart(rows[place], rows[other], separate)
    return count


class _Meetings(NamedTuple):
    """An index of items, the rows of all batches as they were at first, by their keys: codes,
    documents, answers of their anchors, and row numbers. All arrays are int64.

    Attributes:
        rows: (items,), the row of each.
        firsts: (C + 3,), the first key of each array of codes, of documents, answers, and rows.
        starts: (keys + 1,), where the items of each key start.
        items: of all keys; (0,) if batches are small, or the items too many.
    """

    rows: Int64Array
    firsts: Int64Array
    starts: Int64Array
    items: Int64Array


def _meetings(rows: Int64Array, size: int, separate: Apart) -> _Meetings:
    """Return the index of rows in batches of up to ``size``."""
    width = 1 + int(max(separate.documents.max(initial=-1), separate.answers.max(initial=-1)))
    firsts = np.cumsum([0, *(1 + int(own.max(initial=-1)) for own in separate.codes), width, width])
    asked = np.diff(separate.spans[rows]).sum() if separate.spans.size else 0
    starts, items = np.zeros(firsts[-1] + 2 + int(rows.max()), np.int64), np.empty(0, np.int64)
    if size > _SCANNED and asked <= _MOST_ASKED * len(rows):
        _index(rows, separate, firsts, starts, items)
        starts = np.append(0, np.cumsum(starts[:-1]))
        items = np.empty(starts[-1], np.int64)
        _index(rows, separate, firsts, starts[:-1].copy(), items)
    return _Meetings(rows.copy(), firsts, starts, items)


@njit
def _index(rows, separate, firsts, following, items):  # type: ignore[no-untyped-def]
    """Write the items of each key, or only count them if there is no room for them."""
    count = len(separate.codes)
    for e in range(rows.size):
        row = rows[e]
        for c in range(count):
            if separate.codes[c, row] >= 0:
                _put(firsts[c] + separate.codes[c, row], e, following, items)
        if separate.spans.size:
            for c in range(separate.documents.shape[0]):
                if separate.documents[c, row] >= 0:
                    _put(firsts[count] + separate.documents[c, row], e, following, items)
            for place in range(separate.spans[row, 0], separate.spans[row, 1]):
                _put(firsts[count + 1] + separate.answers[place], e, following, items)
        _put(firsts[count + 2] + row, e, following, items)


@njit
def _put(key, item, following, items):  # type: ignore[no-untyped-def]
    if items.size:
        items[following[key]] = item
    following[key] += 1


@njit
def _keys(row, separate, firsts, out):  # type: ignore[no-untyped-def]
    """Write the keys of the items that a row must not meet. Return how many there are, or more than
    there is room for."""
    count, found = len(separate.codes), 1
    out[0] = firsts[count + 2] + row
    for c in range(count):
        if separate.codes[c, row] >= 0:
            out[found] = firsts[c] + separate.codes[c, row]
            found += 1
    if separate.spans.size:
        for c in range(separate.documents.shape[0]):
            if separate.documents[c, row] >= 0:
                out[found] = firsts[count + 1] + separate.documents[c, row]
                found += 1
        start, stop = separate.spans[row, 0], separate.spans[row, 1]
        if found + stop - start > out.size:
            return out.size + 1
        for place in range(start, stop):
            out[found] = firsts[count] + separate.answers[place]
            found += 1
    return found


@njit
def _conflicts(row, batch, left_out, rows, offsets, separate, meetings, state, most):  # type: ignore[no-untyped-def]
    """The number of rows of a batch, but the one at ``left_out``, that a row must not meet, or a
    number from ``most`` on; and the number of rows that were looked at. These are the rows of the
    batch, or all with a key of the row, whichever are fewer."""
    start, stop = offsets[batch], offsets[batch + 1]
    keys, items, homes, seen = state
    count, work = 0, stop - start
    found = _keys(row, separate, meetings.firsts, keys) if meetings.items.size else keys.size + 1
    if found <= keys.size:
        work = 0
        for k in range(found):
            work += meetings.starts[keys[k] + 1] - meetings.starts[keys[k]]
    if work < stop - start:
        seen[-1] += 1
        for k in range(found):
            for at in range(meetings.starts[keys[k]], meetings.starts[keys[k] + 1]):
                item = meetings.items[at]
                if homes[item] == batch and item != items[left_out] and seen[item] != seen[-1]:
                    seen[item] = seen[-1]
                    count += _TWICE if meetings.rows[item] == row else 1
        return count, work
    for place in range(start, stop):
        if place != left_out:
            other = rows[place]
            count += _TWICE if other == row else int(apart(row, other, separate))
            if count >= most:
                break
    return count, stop - start


@njit
def _mend(rows, offsets, separate, kinds, flagged, generator, tries, meetings):  # type: ignore[no-untyped-def]
    """Move rows of conflicts, as the search of minimal conflicts (Minton et al., 1992): a random
    one of them changes places with the best of a few random rows. Go back to the best state, and
    return whether it has no conflict."""
    batches = np.empty(rows.size, np.int64)
    for batch in range(offsets.size - 1):
        batches[offsets[batch] : offsets[batch + 1]] = batch
    each = len(separate.codes) + separate.documents.shape[0]
    state = (
        np.empty(_KEYS + each, np.int64),
        np.arange(rows.size),
        batches.copy(),
        np.zeros(rows.size + 1, np.int64),
    )
    items, homes = state[1], state[2]
    more = separate, meetings, state
    pending = np.empty(rows.size, np.int64)  # places; each conflict has one at least
    pending[: flagged.size] = flagged
    is_pending = np.zeros(rows.size, np.bool_)
    is_pending[flagged] = True
    count, since, total, best = flagged.size, 0, 0, 0
    swaps = np.empty((_PATIENCE, 2), np.int64)  # since the best state
    made = 0
    left = _WORK
    while count and since < _PATIENCE and left > 0:
        at = int(generator.random() * count)
        p = pending[at]
        u = rows[p]
        own, work = _conflicts(u, batches[p], p, rows, offsets, *more, _TWICE)
        left -= work
        if not own:
            count -= 1
            pending[at], is_pending[p] = pending[count], False
            continue
        since += 1
        q, least = -1, _TWICE // 2
        for _ in range(1 if generator.random() < _NOISE else tries):
            place = int(generator.random() * rows.size)
            v, other = rows[place], batches[place]
            if other == batches[p] or (kinds.size and kinds[u] != kinds[v]):
                continue
            change, work = _conflicts(u, other, place, rows, offsets, *more, own + least)
            change -= own
            left -= work
            if change >= least:
                continue
            gained, work = _conflicts(v, batches[p], p, rows, offsets, *more, _TWICE)
            lost, again = _conflicts(v, other, place, rows, offsets, *more, _TWICE)
            left -= work + again
            change += gained - lost
            if change < least:
                q, least = place, change
            if least <= -own:
                break
        if q < 0:
            continue
        rows[p], rows[q] = rows[q], rows[p]
        items[p], items[q] = items[q], items[p]
        homes[items[p]], homes[items[q]] = batches[p], batches[q]
        total += least
        swaps[made, 0], swaps[made, 1] = p, q
        made += 1
        if not is_pending[q]:
            pending[count], is_pending[q] = q, True
            count += 1
        if total < best:
            best, since, made = total, 0, 0
    for k in range(made - 1, -1, -1):
        p, q = swaps[k, 0], swaps[k, 1]
        rows[p], rows[q] = rows[q], rows[p]
    return count == 0
