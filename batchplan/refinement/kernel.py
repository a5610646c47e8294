"""Two batches, their rows exchanged so that the loss of both together is higher: compiled.

The loss of a batch is the sum, over its rows and both directions, of log sum_j exp(s_ij / tau);
what the positives add never changes. A pair of batches is a *block* of m rows, each on a side, 0
or 1.

Terms are divided by the largest of their sum, so that float32 holds them: ``terms[u, i]`` is what
row u adds to the sum of row i when both are on one side. Pairs of rows that do not count have 0.

A swap changes every sum of the block by the difference of two terms, so that its gain is a sum of
logarithms of ratios. Ratios are multiplied a few at a time, and the logarithm is taken of the
product.
"""

from __future__ import annotations

import numpy as np

from batchplan.kernels import njit

# What a pair of rows is to each other, in the masks of a block.
COUNTED, UNCOUNTED, SIMILAR, BROKEN, SAME_ROW = 0, 1, 2, 3, 4

# Nats. What is too similar outweighs any loss, if it has no penalty; rows of a group any number of
# such pairs in a block, and a row that is twice in a batch any number of those.
APART, GROUP, _TWICE = 1e6, 1e9, 1e12
_WATCHED = 32
_LANES = 16
_RUN = 16  # ratios multiplied in a lane before a logarithm is taken of their product
_SMALLEST, _LARGEST = 1e-9, 1e9  # of a ratio; the product of 2 * 16 stays within float64
_TINY = 1e-300


@njit
def climb(forth, back, mask, penalty, kinds, side, top, patience, floor):  # type: ignore[no-untyped-def]
    """Swap rows between the sides of a block, in place.

    As Kernighan and Lin (1970) do: the best swap is made even if it lowers the loss, its rows are
    locked, and when ``patience`` swaps in a row have not led to a new best the block goes back to
    the best it was. The best swap is sought among the ``top`` rows of either side that would gain
    most if they moved alone. What all rows would gain is found out every so many swaps; in between
    only the `_WATCHED` rows of either side that would gain most are looked at.

    Args:
        forth, back: float32 (m, m), the terms of x to y and of y to x.
        mask: uint8 (m, m), what each pair of rows is to each other; (0, 0) where all count.
        penalty: nats that a pair which is too similar is worth parting for.
        kinds: int64 (m,); only rows of one kind are swapped. (0,) where all are of one.
        side: int8 (m,), 0 or 1.
        top: rows of a side that are tried.
        patience: swaps without a new best.
        floor: the least gain in nats that makes a new best.

    """
    m = side.size
    sums = np.empty((2, m))
    others = np.empty((2, m))
    _sums(forth, side, sums[0], others[0])
    _sums(back, side, sums[1], others[1])
    apart = _conflicts(mask, penalty, side)
    gains = np.empty(m)
    signed = np.empty((2, m))
    free = np.ones(m, np.bool_)
    watched = np.empty(m, np.int64)
    count = swaps = 0
    between = max(_WATCHED // 2, m // 32)
    best_side = side.copy()
    total = best = 0.0
    since = 0
    while since <= patience:
        anew = count == 0 or swaps == between
        if anew:
            for i in range(m):
                watched[i] = i
            count, swaps = m, 0
        _move_gains(forth, back, side, sums, others, apart, signed, gains, watched[:count])
        if anew and not kinds.size:
            count = _watch(gains, side, free, watched)
        u, v, gain = _best_swap(
            forth, back, mask, penalty, kinds, side, sums, others, apart, signed, gains, free, top,
            watched[:count],
        )  # fmt: skip
        if not anew and (u < 0 or gain <= floor):
            count = 0
            continue
        if u < 0:
            break
        swaps += 1
        _swap_sums(forth, side, sums[0], others[0], u, v)
        _swap_sums(back, side, sums[1], others[1], u, v)
        if mask.size:
            _swap_conflicts(mask, penalty, side, apart, u, v)
        side[u], side[v] = side[v], side[u]
        free[u] = free[v] = False
        total += gain
        since += 1
        if total > best + floor:
            best, since = total, 0
            best_side[:] = side
    side[:] = best_side


@njit
def _sums(terms, side, own, other):  # type: ignore[no-untyped-def]
    """Of each row the sum of the terms of its side, and of the other side."""
    own[:] = 0
    other[:] = 0
    for u in range(side.size):
        for i in range(side.size):
            if side[u] == side[i]:
                own[i] += terms[u, i]
            else:
                other[i] += terms[u, i]
    for i in range(side.size):
        own[i] = max(own[i], _TINY)


@njit
def _weight(relation, penalty):  # type: ignore[no-untyped-def]
    if relation == SIMILAR:
        return penalty
    return _TWICE if relation == SAME_ROW else GROUP if relation == BROKEN else 0.0


@njit
def _conflicts(mask, penalty, side):  # type: ignore[no-untyped-def]
    """float64 (2, m): the weight of what each row should be apart from, on its side and across."""
    m = side.size
    apart = np.zeros((2, m))
    if mask.size:
        for u in range(m):
            for i in range(m):
                if mask[u, i] >= SIMILAR and u != i:
                    apart[side[u] ^ side[i], i] += _weight(mask[u, i], penalty)
    return apart


@njit
def _move_gains(forth, back, side, sums, others, apart, signed, gains, rows):  # type: ignore[no-untyped-def]
    """What each of ``rows`` would gain the block if it alone changed sides."""
    first, second = signed[0], signed[1]
    for i in range(side.size):
        sign = 1.0 - 2.0 * side[i]
        first[i] = sign / sums[0, i]
        second[i] = sign / sums[1, i]
    for u in rows:
        held = first[u], second[u]
        first[u] = second[u] = 0.0  # its own sums follow below
        gain = _log_ratios(first, second, forth[u], back[u], 2.0 * side[u] - 1.0)
        first[u], second[u] = held
        own = (others[0, u] + forth[u, u]) / sums[0, u]
        own_back = (others[1, u] + back[u, u]) / sums[1, u]
        gain += np.log(max(own, _TINY)) + np.log(max(own_back, _TINY))
        gains[u] = gain + apart[0, u] - apart[1, u]


@njit(fastmath={"reassoc", "contract", "nsz", "nnan"})
def _log_ratios(first, second, x, y, sign):  # type: ignore[no-untyped-def]
    """Sum of log(1 + sign first_i x_i) + log(1 + sign second_i y_i), in lanes that the compiler
    makes vectors of."""
    lanes = np.ones(_LANES)
    whole = x.size - x.size % _LANES
    total, run = 0.0, 0
    for start in range(0, whole, _LANES):
        for k in range(_LANES):
            a = 1.0 + sign * first[start + k] * x[start + k]
            b = 1.0 + sign * second[start + k] * y[start + k]
            lanes[k] *= min(max(a, _SMALLEST), _LARGEST) * min(max(b, _SMALLEST), _LARGEST)
        run += 1
        if run == _RUN:
            run = 0
            for k in range(_LANES):
                total += np.log(lanes[k])
                lanes[k] = 1.0
    for i in range(whole, x.size):
        a = 1.0 + sign * first[i] * x[i]
        b = 1.0 + sign * second[i] * y[i]
        total += np.log(min(max(a, _SMALLEST), _LARGEST) * min(max(b, _SMALLEST), _LARGEST))
    for k in range(_LANES):
        total += np.log(lanes[k])
    return total


@njit
def _best_swap(  # type: ignore[no-untyped-def]
    forth, back, mask, penalty, kinds, side, sums, others, apart, signed, gains, free, top, rows
):
    """The best swap found among ``rows``, (-1, -1, -inf) where none is allowed."""
    firsts = np.empty(top, np.int64)
    seconds = np.empty(top, np.int64)
    chosen_u, chosen_v, best = -1, -1, -np.inf
    found = _leaders(gains, side, free, kinds, 0, -1, rows, firsts)
    count = _leaders(gains, side, free, kinds, 1, -1, rows, seconds)
    for p in range(found):
        u = firsts[p]
        if kinds.size:
            count = _leaders(gains, side, free, kinds, 1, kinds[u], rows, seconds)
        for q in range(count):
            v = seconds[q]
            # Each alone would join the other; changing places, they stay as far apart as they are.
            between = 2 * _weight(mask[u, v], penalty) if mask.size else 0.0
            if gains[u] + gains[v] + between <= best:
                continue
            gain = _swap_gain(forth, back, side, sums, others, signed, u, v) + between
            gain += apart[0, u] + apart[0, v] - apart[1, u] - apart[1, v]
            if gain > best:
                chosen_u, chosen_v, best = u, v, gain
    return chosen_u, chosen_v, best


@njit
def _watch(gains, side, free, watched):  # type: ignore[no-untyped-def]
    """Put the rows of either side that gain most in front, in rising order, and count them."""
    kinds = np.empty(0, np.int64)
    chosen = np.empty((2, _WATCHED), np.int64)
    rows = np.arange(side.size)
    count = 0
    for which in range(2):
        found = _leaders(gains, side, free, kinds, which, -1, rows, chosen[which])
        watched[count : count + found] = chosen[which, :found]
        count += found
    watched[:count] = np.sort(watched[:count])
    return count


@njit
def _leaders(gains, side, free, kinds, which, kind, rows, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with the free ones of ``rows`` on a side that gain most, the first of equal
    ones first."""
    count = 0
    for i in rows:
        if side[i] != which or not free[i] or (kind >= 0 and kinds[i] != kind):
            continue
        if count < out.size:
            place = count
            count += 1
        elif gains[i] > gains[out[count - 1]]:
            place = count - 1
        else:
            continue
        while place > 0 and gains[out[place - 1]] < gains[i]:
            out[place] = out[place - 1]
            place -= 1
        out[place] = i
    return count


@njit
def _swap_gain(forth, back, side, sums, others, signed, u, v):  # type: ignore[no-untyped-def]
    """What the block gains if u and v change places, but for rows that should be apart."""
    held = signed[:, u].copy(), signed[:, v].copy()
    signed[:, u] = signed[:, v] = 0.0
    gain = _log_ratios(
        signed[0], signed[1], forth[v] - forth[u], back[v] - back[u], 1.0 - 2.0 * side[u]
    )
    signed[:, u], signed[:, v] = held
    for terms, own, other in ((forth, sums[0], others[0]), (back, sums[1], others[1])):
        at_u = (other[u] + terms[u, u] - terms[v, u]) / own[u]
        at_v = (other[v] + terms[v, v] - terms[u, v]) / own[v]
        gain += np.log(max(at_u, _TINY)) + np.log(max(at_v, _TINY))
    return gain


@njit
def _swap_sums(terms, side, own, other, u, v):  # type: ignore[no-untyped-def]
    """The sums after u and v change places; ``side`` is still that before."""
    here = side[u]
    for i in range(side.size):
        change = terms[v, i] - terms[u, i]
        if side[i] != here:
            change = -change
        if i != u and i != v:
            own[i] = max(own[i] + change, terms[i, i], _TINY)
            other[i] -= change
    for i, gone in ((u, v), (v, u)):
        left = own[i] - terms[i, i] + terms[gone, i]
        own[i] = max(other[i] - terms[gone, i] + terms[i, i], _TINY)
        other[i] = left


@njit
def _swap_conflicts(mask, penalty, side, apart, u, v):  # type: ignore[no-untyped-def]
    """The same for the weights of what rows should be apart from."""
    for i in range(side.size):
        if i in (u, v):
            continue
        change = _weight(mask[v, i], penalty) - _weight(mask[u, i], penalty)
        if side[i] != side[u]:
            change = -change
        apart[0, i] += change
        apart[1, i] -= change
    between = _weight(mask[u, v], penalty)
    for i in (u, v):
        apart[0, i], apart[1, i] = apart[1, i] - between, apart[0, i] + between


@njit
def judge(forth, back, mask, before, after):  # type: ignore[no-untyped-def]
    """What a block gained, from sums made afresh.

    Returns:
        The rise of the loss; by how many the pairs fell that are too similar, and by how many
        those that must be apart anyhow, -1 where a row is twice in a batch; and the smallest sum,
        which tells whether float32 held the terms.
    """
    m = before.size
    was, now, other = np.empty(m), np.empty(m), np.empty(m)
    gain, smallest = 0.0, np.inf
    for terms in (forth, back):
        _sums(terms, before, was, other)
        _sums(terms, after, now, other)
        for i in range(m):
            gain += np.log(now[i] / was[i])
            smallest = min(smallest, now[i], was[i])
    similar = broken = 0
    if mask.size:
        for i in range(m):
            for j in range(i):
                parted = (before[i] == before[j]) * 1 - (after[i] == after[j]) * 1
                if mask[i, j] == SAME_ROW and parted < 0:
                    return gain, 0, -1, smallest
                similar += parted * (mask[i, j] == SIMILAR)
                broken += parted * (mask[i, j] == BROKEN)
    return gain, similar, broken, smallest


@njit
def block_loss(logits, mask, side):  # type: ignore[no-untyped-def]
    """The sum of log sum exp over what counts, for logits of any size.

    Args:
        logits: float64 (m, m), s_ij / tau.
        mask, side: as in `climb`.
    """
    m = side.size
    loss = 0.0
    for i in range(m):
        peak = peak_back = logits[i, i]
        for j in range(m):
            if side[i] == side[j] and (i == j or not mask.size or mask[i, j] == COUNTED):
                peak = max(peak, logits[i, j])
                peak_back = max(peak_back, logits[j, i])
        total = total_back = 0.0
        for j in range(m):
            if side[i] == side[j] and (i == j or not mask.size or mask[i, j] == COUNTED):
                total += np.exp(logits[i, j] - peak)
                total_back += np.exp(logits[j, i] - peak_back)
        loss += peak + peak_back + np.log(total) + np.log(total_back)
    return loss


@njit
def make_mask(similarities, rows, ceilings, codes, window, out):  # type: ignore[no-untyped-def]
    """What the rows of a block are to each other.

    Args:
        similarities: float32 (m, m), s_ij.
        rows: int64 (m,), which rows of the data they are.
        ceilings: float32 (N,) of the guard, or (0,).
        codes: int64 (C, N) of the guard.
        window: float32 (2, N): a pair counts where s_ij lies from the first up to, but not at, the
            second, for either of its rows; (2, 0) where all count.
        out: uint8 (m, m), filled.
    """
    m = rows.size
    for a in range(m):
        i = rows[a]
        out[a, a] = COUNTED
        for b in range(a + 1, m):
            j = rows[b]
            forth, back = similarities[a, b], similarities[b, a]
            relation = COUNTED
            if window.shape[1]:
                inside = window[0, i] <= forth < window[1, i]
                if not (inside or window[0, j] <= back < window[1, j]):
                    relation = UNCOUNTED
            if ceilings.size and max(forth, back) >= min(ceilings[i], ceilings[j]):
                relation = SIMILAR
            for c in range(codes.shape[0]):
                if codes[c, i] >= 0 and codes[c, i] == codes[c, j]:
                    relation = BROKEN
            if i == j:
                relation = SAME_ROW
            out[a, b] = out[b, a] = relation
