"""Puts rows that must not meet into different batches, without vectors.

`filled` makes batches of a random order: a row that may not join a batch waits for the next one.
`mended` moves single rows of given batches, as `filled` leaves a few of them, and the repair of
planned batches too. Where some must meet, both leave few of these pairs: rows of one document that
are more than the batches are spread evenly.
"""

import numpy as np

from batchplan.data.answers import distinct
from batchplan.guard.apart import Apart, apart
from batchplan.kernels import njit
from batchplan.typing import Int64Array

_WAITING = 1 << 14  # waiting rows that a batch looks at, at most
_TRIES, _TRIED = 64, 1 << 18  # places to move a row to; comparisons of rows for them
_PATIENCE, _WORK = 2048, 1 << 24  # steps without a better state; comparisons of all steps
_NOISE = 0.1  # share of the steps that take any place, even if that is worse
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
    if _mend(rows, offsets, separate, kinds, flagged, generator, tries):
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


@njit
def _conflicts(row, start, stop, left_out, rows, separate, most):  # type: ignore[no-untyped-def]
    """The number of rows of a batch, but the one at ``left_out``, that a row must not meet; or a
    number from ``most`` on."""
    count = 0
    for place in range(start, stop):
        if place != left_out:
            other = rows[place]
            count += _TWICE if other == row else int(apart(row, other, separate))
            if count >= most:
                break
    return count


@njit
def _mend(rows, offsets, separate, kinds, flagged, generator, tries):  # type: ignore[no-untyped-def]
    """Move rows of conflicts, as the search of minimal conflicts (Minton et al., 1992): a random
    one of them changes places with the best of a few random rows. Go back to the best state, and
    return whether it has no conflict."""
    batches = np.empty(rows.size, np.int64)
    for batch in range(offsets.size - 1):
        batches[offsets[batch] : offsets[batch + 1]] = batch
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
        u, start, stop = rows[p], offsets[batches[p]], offsets[batches[p] + 1]
        own = _conflicts(u, start, stop, p, rows, separate, _TWICE)
        left -= stop - start
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
            begin, end = offsets[other], offsets[other + 1]
            left -= end - begin
            change = _conflicts(u, begin, end, place, rows, separate, own + least) - own
            if change >= least:
                continue
            left -= stop - start + end - begin
            change += _conflicts(v, start, stop, p, rows, separate, _TWICE)
            change -= _conflicts(v, begin, end, place, rows, separate, _TWICE)
            if change < least:
                q, least = place, change
            if least <= -own:
                break
        if q < 0:
            continue
        rows[p], rows[q] = rows[q], rows[p]
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
