"""Compiled swaps of rows between two batches that raise their total loss.

A swap changes every sum of the block by the difference of two terms. So its gain is the logarithm
of a product of ratios, which is computed in float32 if the product is in range.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import insert, njit
from batchplan.refinement.blocks import APART, TINY, UNDERFLOW, sums_of, weight

_WATCHED = 32  # rows per side whose gains are updated after each swap
_LEAST, _MOST = 1e-30, 1e30  # range of a product of ratios in float32
_SMALLEST, _LARGEST = 1e-9, 1e9  # to which each ratio is limited if the product is out of range
_STEPS = 4096.0  # gains are compared in steps of 1 / 4096 nat
_SLACK = 1 / 128  # nats; more than rounding errors of a gain and of its bound
# Sides of a block, and any kind. Functions are compiled again for each plain number they are given.
_FIRST, _SECOND, _ANY = np.int64(0), np.int64(1), np.int64(-1)


class Search(NamedTuple):
    """How hard `climb` tries.

    Attributes:
        top: number of rows per side to try.
        patience: number of swaps without a new best state after which it stops.
        floor: smallest gain, in nats, that makes a new best state.
    """

    top: int = 4
    patience: int = 4
    floor: float = 1e-3


# Makes only swaps that separate more rows, at any loss.
REPAIR = Search(patience=0, floor=APART / 2)


class Split(NamedTuple):
    """A block split in two, updated by swaps.

    Attributes:
        side: int8 (m,), 0 or 1.
        sums, others: float64 (2, m), in both directions, the sum of each row's terms on its side,
            and on the other side.
        apart: float64 (2, m), the sum of the `weight` of each row's pairs, on its side and across.
        signed: float32 (2, m), 1 / sums, negative on side 1.
        gains: float64 (m,), the gain of the block if only this row changed sides, or a bound.
        exact: bool (m,), whether it is the gain and not a bound, which the gain does not exceed.
        free: bool (m,), whether no swap has locked the row.
    """

    side: NDArray[np.int8]
    sums: NDArray[np.float64]
    others: NDArray[np.float64]
    apart: NDArray[np.float64]
    signed: NDArray[np.float32]
    gains: NDArray[np.float64]
    exact: NDArray[np.bool_]
    free: NDArray[np.bool_]


@njit
def climb(block, side, search):  # type: ignore[no-untyped-def]
    """Swap rows between the sides of a block: ``side``, int8 (m,) of 0 or 1, changes in place.

    The method is from Kernighan and Lin (1970). The best swap is made even if it lowers the
    loss, and its rows are locked. After ``patience`` swaps without a new best state, the block
    returns to its best state. Candidates for swaps are the ``top`` rows per side that would gain
    most if only they changed sides. All rows are compared every few swaps, and between these only
    the `_WATCHED` best rows per side.

    Returns:
        Whether anything changed.
    """
    m = side.size
    split = split_of(block, side)
    watched = np.empty(m, np.int64)
    count = swaps = 0
    between = max(_WATCHED // 2, m // 32)
    best_side = side.copy()
    total = best = 0.0
    since = 0
    while since <= search.patience:
        all_rows = count == 0 or swaps == between
        if all_rows:
            for i in range(m):
                watched[i] = i
            count, swaps = m, 0
        _bound_gains(block, split, watched[:count])
        if all_rows and not block.kinds.size:
            count = _watch(block, split, watched)
        u, v, gain = _best_swap(block, split, search.top, watched[:count])
        if not all_rows and (u < 0 or gain <= search.floor):
            count = 0
            continue
        if u < 0:
            break
        swaps += 1
        _swap(block, split, u, v)
        total += gain
        since += 1
        if total > best + search.floor:
            best, since = total, 0
            _copy(side, best_side)
        else:
            count = 0  # no watched row gains, so compare all rows next
    _copy(best_side, side)
    return best > 0


@njit
def _copy(side, out):  # type: ignore[no-untyped-def]
    """Copy ``side`` to ``out``. ``out[:] = side`` takes 2 s longer to compile, because of an error
    message."""
    for i in range(side.size):
        out[i] = side[i]


@njit(inline="always")
def split_of(block, side):  # type: ignore[no-untyped-def]
    """The `Split` of a block by ``side``; `_bound_gains` fills ``signed``, ``gains``, ``exact``."""
    m, mask, penalty = side.size, block.mask, block.penalty
    sums, others, apart = np.empty((2, m)), np.empty((2, m)), np.zeros((2, m))
    for way in range(2):
        sums_of(block.terms[way], side, sums[way], others[way])
    if mask.size:
        weights = np.zeros((2, m))
        for u in range(m):
            total = weights[side[u]]
            for i in range(m):
                total[i] += weight(mask[u, i], penalty)
        for i in range(m):
            apart[0, i], apart[1, i] = weights[side[i], i], weights[1 - side[i], i]
    signed = np.empty((2, m), np.float32)
    exact, free = np.zeros(m, np.bool_), np.ones(m, np.bool_)
    return Split(side, sums, others, apart, signed, np.empty(m), exact, free)


@njit(inline="always")
def _bound_gains(block, split, rows):  # type: ignore[no-untyped-def]
    """Fill ``gains`` of some rows with upper bounds, in a third of the time of the gains.

    A gain is a sum of logarithms of ratios 1 + x, and log(1 + x) <= x.
    """
    side, sums, apart = split.side, split.sums, split.apart
    forth, back = block.terms[0], block.terms[1]
    first, second = split.signed[0], split.signed[1]
    for i in range(side.size):
        sign = 1.0 - 2.0 * side[i]
        first[i] = sign / max(sums[0, i], UNDERFLOW)
        second[i] = sign / max(sums[1, i], UNDERFLOW)
    for u in rows:
        change = _sum(first, second, forth[u], back[u])
        change -= first[u] * forth[u, u] + second[u] * back[u, u]  # see `_own_ratios`
        bound = np.log(_own_ratios(block, split, u)) + (2 * side[u] - 1) * change + _SLACK
        split.gains[u] = bound + apart[0, u] - apart[1, u]
        split.exact[u] = False


@njit
def _own_ratios(block, split, u):  # type: ignore[no-untyped-def]
    """The ratios of the two sums of u itself, after and before it changes sides."""
    ratios = 1.0
    for way in range(2):
        other = split.others[way, u] + block.terms[way, u, u]
        ratios *= max(other / max(split.sums[way, u], UNDERFLOW), UNDERFLOW)
    return ratios


@njit(inline="always")
def _compute_gain(block, split, u):  # type: ignore[no-untyped-def]
    """Replace the bound of a row in ``gains`` by its gain."""
    apart, first, second = split.apart, split.signed[0], split.signed[1]
    held = first[u], second[u]
    first[u] = second[u] = 0  # its own sums are in `_own_ratios`
    sign = np.float32(2 * split.side[u] - 1)
    own = _own_ratios(block, split, u)
    gain = _log_ratios(own, first, second, block.terms[0, u], block.terms[1, u], sign)
    first[u], second[u] = held
    split.gains[u] = _comparable(gain) + apart[0, u] - apart[1, u]
    split.exact[u] = True


@njit
def _comparable(gain):  # type: ignore[no-untyped-def]
    """A rounded gain. Equal rows then have equal gains on any processor, and the lower row comes
    first."""
    return np.rint(gain * _STEPS) / _STEPS


@njit
def _log_ratios(own, first, second, x, y, sign):  # type: ignore[no-untyped-def]
    """log own + the sum of log(1 + sign first_i x_i) + log(1 + sign second_i y_i)."""
    product = _product(first, second, x, y, sign)
    if _LEAST < product < _MOST:
        return np.log(own * product)
    total = np.log(own)
    for i in range(x.size):
        a = 1.0 + sign * np.float64(first[i]) * x[i]
        b = 1.0 + sign * np.float64(second[i]) * y[i]
        total += np.log(min(max(a, _SMALLEST), _LARGEST) * min(max(b, _SMALLEST), _LARGEST))
    return total


@njit(fastmath={"reassoc", "contract", "nsz"})
def _sum(first, second, x, y):  # type: ignore[no-untyped-def]
    """The sum of first_i x_i + second_i y_i."""
    total = np.float32(0)
    for i in range(x.size):
        total += first[i] * x[i] + second[i] * y[i]
    return total


@njit(fastmath={"reassoc", "contract", "nsz"})
def _product(first, second, x, y, sign):  # type: ignore[no-untyped-def]
    """The product of the ratios, in the order that the compiler chooses for vector registers."""
    product = np.float32(1)
    for i in range(x.size):
        a = np.float32(1) + sign * first[i] * x[i]
        b = np.float32(1) + sign * second[i] * y[i]
        product *= a * b
    return product


@njit(inline="always")
def _best_swap(block, split, top, rows):  # type: ignore[no-untyped-def]
    """The best swap among ``rows`` and its gain; (-1, -1, -inf) if none is allowed."""
    gains, apart, kinds = split.gains, split.apart, block.kinds
    firsts = np.empty(top, np.int64)
    seconds = np.empty(top, np.int64)
    chosen_u, chosen_v, best = -1, -1, -np.inf
    tried = _leaders(block, split, _FIRST, _ANY, rows, firsts)
    count = _leaders(block, split, _SECOND, _ANY, rows, seconds)
    for u in firsts[:tried]:
        if kinds.size:
            count = _leaders(block, split, _SECOND, kinds[u], rows, seconds)
        for v in seconds[:count]:
            # The gains of u and v assume that each joins the other. In a swap they stay separated.
            between = 2 * _weight_between(block, u, v)
            if gains[u] + gains[v] + between <= best:
                continue
            gain = _comparable(_swap_gain(block, split, u, v)) + between
            gain += apart[0, u] + apart[0, v] - apart[1, u] - apart[1, v]
            if gain > best:
                chosen_u, chosen_v, best = u, v, gain
    return chosen_u, chosen_v, best


@njit(inline="always")
def _watch(block, split, watched):  # type: ignore[no-untyped-def]
    """Move the rows of each side with the highest bounds to the front, in rising order; return how
    many."""
    rows = np.arange(watched.size)
    leading = np.zeros(watched.size, np.bool_)
    chosen = np.empty(_WATCHED, np.int64)
    for which in range(2):
        for place in range(_highest(block, split, which, _ANY, rows, chosen)):
            leading[chosen[place]] = True
    count = 0
    for i in rows:
        if leading[i]:
            watched[count] = i
            count += 1
    return count


@njit
def _leaders(block, split, which, kind, rows, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with the free rows of a side that gain most; return how many there are.

    Of equal gains, the lower row comes first. A ``kind`` below 0 means any. Gains are computed
    only of the rows whose bounds are high enough.
    """
    count = _highest(block, split, which, kind, rows, out)
    while True:
        bounded = 0
        for u in out[:count]:
            if not split.exact[u]:
                _compute_gain(block, split, u)
                bounded += 1
        if not bounded:
            return count
        _highest(block, split, which, kind, rows, out)


@njit
def _highest(block, split, which, kind, rows, out):  # type: ignore[no-untyped-def]
    """`_leaders`, but by ``gains`` as they are, bounds or not."""
    side, free, gains = split.side, split.free, split.gains
    best = np.full(out.size, -np.inf)
    count = 0
    for i in rows:
        if side[i] != which or not free[i] or (kind >= 0 and block.kinds[i] != kind):
            continue
        if gains[i] > best[-1]:
            count += 1
            insert(gains[i], i, best, out)
    return min(count, out.size)


@njit(inline="always")
def _swap_gain(block, split, u, v):  # type: ignore[no-untyped-def]
    """The rise of the loss if u and v change places."""
    signed = split.signed
    forth, back = block.terms[0], block.terms[1]
    own = 1.0
    for way in range(2):
        terms, sums, others = block.terms[way], split.sums[way], split.others[way]
        at_u = (others[u] + terms[u, u] - terms[v, u]) / max(sums[u], UNDERFLOW)
        at_v = (others[v] + terms[v, v] - terms[u, v]) / max(sums[v], UNDERFLOW)
        own *= max(at_u, UNDERFLOW) * max(at_v, UNDERFLOW)
    held = signed[0, u], signed[1, u], signed[0, v], signed[1, v]
    signed[:, u] = signed[:, v] = 0
    sign = np.float32(1 - 2 * split.side[u])
    x, y = forth[v] - forth[u], back[v] - back[u]
    gain = _log_ratios(own, signed[0], signed[1], x, y, sign)
    signed[0, u], signed[1, u], signed[0, v], signed[1, v] = held
    return gain


@njit(inline="always")
def _swap(block, split, u, v):  # type: ignore[no-untyped-def]
    """Let u and v change places, and lock them."""
    side = split.side
    for way in range(2):
        _swap_sums(block.terms[way], side, split.sums[way], split.others[way], u, v)
    if block.mask.size:
        _swap_conflicts(block, side, split.apart, u, v)
    side[u], side[v] = side[v], side[u]
    split.free[u] = split.free[v] = False


@njit(inline="always")
def _swap_sums(terms, side, own, other, u, v):  # type: ignore[no-untyped-def]
    """Update the sums as u and v change places; ``side`` has not changed yet."""
    here = side[u]
    for i in range(side.size):
        change = terms[v, i] - terms[u, i]
        change = change if side[i] == here else -change
        if i != u and i != v:
            own[i] = max(own[i] + change, terms[i, i], TINY)
            other[i] -= change
    for i, gone in ((u, v), (v, u)):
        left = own[i] - terms[i, i] + terms[gone, i]
        own[i] = max(other[i] - terms[gone, i] + terms[i, i], TINY)
        other[i] = left


@njit(inline="always")
def _swap_conflicts(block, side, apart, u, v):  # type: ignore[no-untyped-def]
    """Update `Split.apart` as u and v change places; ``side`` has not changed yet."""
    mask, penalty, here = block.mask, block.penalty, side[u]
    held = apart[0, u], apart[1, u], apart[0, v], apart[1, v]
    for i in range(side.size):
        change = weight(mask[v, i], penalty) - weight(mask[u, i], penalty)
        change = change if side[i] == here else -change
        apart[0, i] += change
        apart[1, i] -= change
    apart[0, u], apart[1, u], apart[0, v], apart[1, v] = held
    between = _weight_between(block, u, v)
    for i in (u, v):
        apart[0, i], apart[1, i] = apart[1, i] - between, apart[0, i] + between


@njit
def _weight_between(block, u, v):  # type: ignore[no-untyped-def]
    return weight(block.mask[u, v], block.penalty) if block.mask.size else 0.0
