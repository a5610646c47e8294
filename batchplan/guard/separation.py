"""Puts rows that must not meet into different batches, without vectors.

`filled` makes batches of a random order: a row that may not join a batch waits for the next one.
`mended` moves single rows of given batches, as `filled` leaves a few of them, and the repair of
planned batches too. Where some must meet, both leave few of these pairs: rows of one document that
are more than the batches are spread evenly.
"""

from typing import NamedTuple

import numpy as np

from batchplan.data.duplicates import any_repeated
from batchplan.guard.apart import Apart, apart
from batchplan.kernels import njit
from batchplan.typing import Int32Array, Int64Array

_WAITING = 1 << 14  # waiting rows that a batch looks at, at most
_TRIES, _TRIED = 64, 1 << 18  # places to move a row to; comparisons of rows for them
_PATIENCE, _WORK = 2048, 1 << 24  # steps without a better state; comparisons of all steps
_NOISE = 0.1  # share of the steps that take any place, even if that is worse
_SOON = 4  # batches that most rows look at
_SCANNED = 256  # rows of a batch that are compared faster than looked up
_KEYS, _MOST_ASKED = 256, 16  # answers of a row, and of all rows on average, that are looked up
_TWICE = 1 << 20  # a row that meets itself counts as this many conflicts


def filled(
    rows: Int64Array, offsets: Int64Array, separate: Apart, generator: np.random.Generator
) -> Int64Array:
    """Make batches of the same sizes with the rows in about the same order, in which few rows must
    be separate.

    Args:
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
        separate: of all N rows.
        generator: draws the places of rows that fit nowhere.

    Returns:
        The new rows.
    """
    own, items = separate.take(rows), np.arange(len(rows))
    if any_repeated(rows):  # a batch must not have a row twice
        codes = np.concatenate((own.codes.reshape(-1, len(rows)), rows[None].astype(np.int32)))
        own = own._replace(codes=codes)
    possible = _possible(own, len(offsets) - 1)
    items, forced = _placed(items, offsets, True, *possible, *_stamps(possible))
    items = _mended(items, rows, offsets, possible, generator, None, forced)
    if possible is not own:
        flagged = _flagged(items, offsets, own)
        items = _mended(items, rows, offsets, own, generator, None, flagged)
    return rows[items]


def mended(
    rows: Int64Array,
    offsets: Int64Array,
    separate: Apart,
    generator: np.random.Generator,
    kinds: Int64Array | None = None,
) -> Int64Array:
    """Exchange rows between batches until none must be separate, or further steps hardly help.

    Args:
        rows, offsets, separate, generator: as `filled` takes them.
        kinds: int64 (N,), only rows of the same kind are exchanged; None, or (0,), if there is one.

    Returns:
        The new rows.
    """
    own, items = separate.take(rows), np.arange(len(rows))
    flagged = _flagged(items, offsets, own)
    return rows[_mended(items, rows, offsets, own, generator, kinds, flagged)]


def left_together(rows: Int64Array, offsets: Int64Array, separate: Apart) -> int:
    """Return the number of pairs of rows of a batch that must be separate; arguments as `filled`
    takes them."""
    own, items = separate.take(rows), np.arange(len(rows))
    return int(_count(offsets, own, _flagged(items, offsets, own)))


def _mended(
    items: Int64Array,
    rows: Int64Array,
    offsets: Int64Array,
    own: Apart,
    generator: np.random.Generator,
    kinds: Int64Array | None,
    flagged: Int64Array,
) -> Int64Array:
    """`mended` of items, numbers in ``rows`` and ``own``, if each pair of items that must be
    separate has one at a ``flagged`` place."""
    if not len(flagged) or len(offsets) == 2:
        return items
    size = int(np.diff(offsets).max())
    tries = max(8, min(_TRIES, _TRIED // size))
    kinds = np.empty(0, np.int64) if kinds is None or not len(kinds) else kinds[rows]
    worth = _SOON * len(flagged) * size > len(rows)
    meetings = _meetings(rows, size if worth else 0, own)
    items = items.copy()
    _mend(items, offsets, own, kinds, flagged, generator, tries, meetings)
    return items


def _flagged(items: Int64Array, offsets: Int64Array, own: Apart) -> Int64Array:
    """Return the places of items that must not meet an earlier item of their batch, rising."""
    flagged: Int64Array = _placed(items, offsets, False, *own, *_stamps(own))[1]
    return flagged


def _possible(own: Apart, count: int) -> Apart:
    """Return what ``count`` batches may separate. Of more rows with one code, each ``count`` get a
    code of their own, and a document of more rows may meet any other row."""
    codes, documents = own.codes, own.documents
    for c, given in enumerate(own.codes):
        many = np.bincount(given + 1)[1:] > count
        if many.any():
            chosen = np.flatnonzero((given >= 0) & many[given])
            chosen = chosen[np.argsort(given[chosen], kind="stable")]
            grouped = given[chosen].astype(np.int64)
            rank = np.arange(len(chosen)) - np.searchsorted(grouped, grouped)
            parts = np.unique(grouped * len(given) + rank // count, return_inverse=True)[1]
            codes = codes.copy() if codes is own.codes else codes
            codes[c, chosen] = len(many) + parts
    many = np.append(False, np.bincount(documents.ravel() + 1)[1:] > count)
    if many.any():
        documents = np.where(many[documents + 1], np.int32(-1), documents)
    if codes is own.codes and documents is own.documents:
        return own
    return own._replace(codes=codes, documents=documents)


def _stamps(own: Apart) -> tuple[Int64Array | Int32Array, ...]:
    """Where the stamps of each array of codes start; the last batch with each code; with each
    document; and with an anchor that each document answers."""
    sizes = [1 + int(codes.max(initial=-1)) for codes in own.codes]
    stamps = np.full(sum(sizes), -1, np.int32)
    return np.cumsum([0, *sizes]), stamps, *np.full((2, _documents(own)), -1, np.int32)


def _documents(own: Apart) -> int:
    """Return how many documents are numbered."""
    return 1 + int(max(own.documents.max(initial=-1), own.answers.max(initial=-1)))


@njit
def _placed(items, offsets, waits, codes, spans, answers, documents, starts, stamps, held, asked):  # type: ignore[no-untyped-def]
    """Put items into batches, in their order. If ``waits``, one that may not join a batch waits for
    the next one, else it joins all the same.

    All is in one loop, as numba counts the references to each array that a function is given: a
    call for each item takes five times as long.

    Returns:
        The items of all places, and the places of those that do not fit.
    """
    out, forced, count = np.empty(items.size, np.int64), np.empty(items.size, np.int64), 0
    following = np.full(items.size, -1, np.int64)  # a list of what waits: numbers of ``items``
    first, last, cursor = -1, -1, 0
    for batch in range(offsets.size - 1):
        place, stop = offsets[batch], offsets[batch + 1]
        before, waiting, seen = -1, first, 0
        while place < stop:
            waited = waiting >= 0 and seen < _WAITING
            if waited:
                number, waiting = waiting, following[waiting]
                seen += 1
            elif cursor < items.size:
                number = cursor
                cursor += 1
            else:
                break
            item, fits = items[number], True
            for c in range(codes.shape[0]):
                fits &= codes[c, item] < 0 or stamps[starts[c] + codes[c, item]] != batch
            if spans.size:
                for c in range(documents.shape[0]):
                    fits &= documents[c, item] < 0 or asked[documents[c, item]] != batch
                for k in range(spans[item, 0], spans[item, 1]):
                    fits &= held[answers[k]] != batch
            if waits and not fits:
                if waited:
                    before = number
                    continue
                first = number if first < 0 else first
                if last >= 0:
                    following[last] = number
                last = number
                continue
            if not fits:
                forced[count] = place
                count += 1
            for c in range(codes.shape[0]):
                if codes[c, item] >= 0:
                    stamps[starts[c] + codes[c, item]] = batch
            if spans.size:
                for c in range(documents.shape[0]):
                    if documents[c, item] >= 0:
                        held[documents[c, item]] = batch
                for k in range(spans[item, 0], spans[item, 1]):
                    asked[answers[k]] = batch
            out[place] = item
            place += 1
            if waited:
                first = waiting if before < 0 else first
                last = before if waiting < 0 else last
                if before >= 0:
                    following[before] = waiting
        while place < stop:  # only items that do not fit are left
            out[place], forced[count] = items[first], place
            count += 1
            place, first = place + 1, following[first]
            last = last if first >= 0 else -1
    return out, forced[:count].copy()


@njit
def _count(offsets, separate, flagged):  # type: ignore[no-untyped-def]
    count = 0
    for place in flagged:
        start = offsets[np.searchsorted(offsets, place, side="right") - 1]
        for other in range(start, place):
            count += apart(place, other, separate)
    return count


class _Meetings(NamedTuple):
    """An index of items by their keys: codes, documents, answers of their anchors, and rows if some
    items have the same one. All arrays are int64.

    Attributes:
        rows: (items,), the row of each.
        firsts: (C + 4,), the first key of each array of codes, of documents, answers, and rows; and
            the number of all.
        starts: (keys + 1,), where the items of each key start.
        items: of all keys; (0,) if batches are small, or the items too many.
    """

    rows: Int64Array
    firsts: Int64Array
    starts: Int64Array
    items: Int64Array


def _meetings(rows: Int64Array, size: int, own: Apart) -> _Meetings:
    """Return the index of items in batches of up to ``size``."""
    each = [1 + int(codes.max(initial=-1)) for codes in own.codes]
    each += [_documents(own)] * 2
    each.append(1 + int(rows.max()) if any_repeated(rows) else 0)
    firsts = np.cumsum([0, *each])
    asked = np.diff(own.spans).sum()
    starts, items = np.zeros(1 + firsts[-1], np.int64), np.empty(0, np.int64)
    if size > _SCANNED and asked <= _MOST_ASKED * len(rows):
        _index(rows, own, firsts, starts, items)
        starts = np.append(0, np.cumsum(starts[:-1]))
        items = np.empty(starts[-1], np.int64)
        _index(rows, own, firsts, starts[:-1].copy(), items)
    return _Meetings(rows, firsts, starts, items)


@njit
def _index(rows, separate, firsts, following, items):  # type: ignore[no-untyped-def]
    """Write the items of each key, or only count them if there is no room for them."""
    codes, spans, answers, documents = separate
    count, most = len(codes), len(codes) + len(documents) + 1
    keys = np.empty(most + _KEYS, np.int64)
    for e in range(rows.size):
        found = 0
        if firsts[count + 2] < firsts[count + 3]:
            keys[0] = firsts[count + 2] + rows[e]
            found = 1
        for c in range(count):
            if codes[c, e] >= 0:
                keys[found] = firsts[c] + codes[c, e]
                found += 1
        if spans.size:
            for c in range(documents.shape[0]):
                if documents[c, e] >= 0:
                    keys[found] = firsts[count] + documents[c, e]
                    found += 1
            if found + spans[e, 1] - spans[e, 0] > keys.size:
                keys = np.append(keys, np.empty(spans[e, 1] - spans[e, 0], np.int64))
            for place in range(spans[e, 0], spans[e, 1]):
                keys[found] = firsts[count + 1] + answers[place]
                found += 1
        for key in keys[:found]:
            if items.size:
                items[following[key]] = e
            following[key] += 1


@njit
def _keys(item, separate, meetings, out):  # type: ignore[no-untyped-def]
    """Write the keys of the items that an item must not meet. Return how many there are, or more
    than there is room for."""
    firsts, count, found = meetings.firsts, len(separate.codes), 0
    if firsts[count + 2] < firsts[count + 3]:
        out[0] = firsts[count + 2] + meetings.rows[item]
        found = 1
    for c in range(count):
        if separate.codes[c, item] >= 0:
            out[found] = firsts[c] + separate.codes[c, item]
            found += 1
    if separate.spans.size:
        for c in range(separate.documents.shape[0]):
            if separate.documents[c, item] >= 0:
                out[found] = firsts[count + 1] + separate.documents[c, item]
                found += 1
        start, stop = separate.spans[item, 0], separate.spans[item, 1]
        if found + stop - start > out.size:
            return out.size + 1
        for place in range(start, stop):
            out[found] = firsts[count] + separate.answers[place]
            found += 1
    return found


@njit
def _conflicts(item, batch, left_out, items, offsets, separate, meetings, state, most):  # type: ignore[no-untyped-def]
    """The number of items of a batch, but the one at ``left_out``, that an item must not meet, or a
    number from ``most`` on; and the number of items that were looked at. These are the items of the
    batch, or all with a key of the item, whichever are fewer."""
    start, stop = offsets[batch], offsets[batch + 1]
    keys, homes, seen = state
    count, work = 0, stop - start
    found = _keys(item, separate, meetings, keys) if meetings.items.size else keys.size + 1
    if found <= keys.size:
        work = 0
        for k in range(found):
            work += meetings.starts[keys[k] + 1] - meetings.starts[keys[k]]
    if work < stop - start:
        seen[-1] += 1
        for k in range(found):
            for at in range(meetings.starts[keys[k]], meetings.starts[keys[k] + 1]):
                other = meetings.items[at]
                if homes[other] == batch and other != items[left_out] and seen[other] != seen[-1]:
                    seen[other] = seen[-1]
                    count += _TWICE if meetings.rows[other] == meetings.rows[item] else 1
        return count, work
    for place in range(start, stop):
        if place != left_out:
            other = items[place]
            same = meetings.rows[other] == meetings.rows[item]
            count += _TWICE if same else int(apart(item, other, separate))
            if count >= most:
                break
    return count, stop - start


@njit
def _mend(items, offsets, separate, kinds, flagged, generator, tries, meetings):  # type: ignore[no-untyped-def]
    """Move items of conflicts, as the search of minimal conflicts (Minton et al., 1992): a random
    one of them changes places with the best of a few random items. Go back to the best state."""
    batches, homes = np.empty(items.size, np.int64), np.empty(items.size, np.int64)
    for batch in range(offsets.size - 1):
        for place in range(offsets[batch], offsets[batch + 1]):
            batches[place] = homes[items[place]] = batch
    each = 1 + len(separate.codes) + separate.documents.shape[0]
    state = np.empty(_KEYS + each, np.int64), homes, np.zeros(items.size + 1, np.int64)
    more = separate, meetings, state
    pending = np.empty(items.size, np.int64)  # places; each conflict has one at least
    pending[: flagged.size] = flagged
    is_pending = np.zeros(items.size, np.bool_)
    is_pending[flagged] = True
    count, since, total, best = flagged.size, 0, 0, 0
    swaps = np.empty((_PATIENCE, 2), np.int64)  # since the best state
    made = 0
    left = _WORK
    while count and since < _PATIENCE and left > 0:
        at = int(generator.random() * count)
        p = pending[at]
        u = items[p]
        own, work = _conflicts(u, batches[p], p, items, offsets, *more, _TWICE)
        left -= work
        if not own:
            count -= 1
            pending[at], is_pending[p] = pending[count], False
            continue
        since += 1
        if kinds.size and generator.random() < 0.5:  # other items of this kind may fit as little
            start, size = offsets[batches[p]], offsets[batches[p] + 1] - offsets[batches[p]]
            shift = int(generator.random() * size)
            for k in range(size):
                place = start + (shift + k) % size
                same = meetings.rows[items[place]] == meetings.rows[u]
                if place != p and (same or apart(u, items[place], separate)):
                    p, u = place, items[place]
                    own, work = _conflicts(u, batches[p], p, items, offsets, *more, _TWICE)
                    left -= work
                    break
        q, least = -1, _TWICE // 2
        for _ in range(1 if generator.random() < _NOISE else tries):
            place = int(generator.random() * items.size)
            v, other = items[place], batches[place]
            if other == batches[p] or (kinds.size and kinds[u] != kinds[v]):
                continue
            change, work = _conflicts(u, other, place, items, offsets, *more, own + least)
            change -= own
            left -= work
            if change >= least:
                continue
            gained, work = _conflicts(v, batches[p], p, items, offsets, *more, _TWICE)
            lost, again = _conflicts(v, other, place, items, offsets, *more, _TWICE)
            left -= work + again
            change += gained - lost
            if change < least:
                q, least = place, change
            if least <= -own:
                break
        if q < 0:
            continue
        items[p], items[q] = items[q], items[p]
        homes[items[p]], homes[items[q]] = batches[p], batches[q]
        total += least
        swaps[made, 0], swaps[made, 1] = p, q
        made += 1
        for place in (p, q):
            if not is_pending[place]:
                pending[count], is_pending[place] = place, True
                count += 1
        if total < best:
            best, since, made = total, 0, 0
    for k in range(made - 1, -1, -1):
        p, q = swaps[k, 0], swaps[k, 1]
        items[p], items[q] = items[q], items[p]
