"""Collects batches by walks over a proximity graph (BatchSampler, KDD 2023, section 4.2).

One loop fills a batch, for every kind of walk. It takes rows that are not marked as used. If rows
may be in several batches, the marks are cleared after each batch. Every batch has its own random
numbers, so that independent batches can be made in any order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchplan.kernels import njit
from batchplan.planners.papers.rwr.counter_random import below, stream, unit
from batchplan.threads import in_order

PATIENCE = 64  # moves to used rows, one after the other, before the walk jumps
_AT_ONCE = 256  # batches per call


class Walker(NamedTuple):
    """How to collect batches, for compiled loops.

    Attributes:
        graph: int32 or int64 (N, K), neighbours of each row, most similar first, then -1.
        order: int64 (N,), a random permutation of the rows, from which walks start.
        key: uint64, seeds the random numbers.
        breadth: whether a batch takes the neighbours of its first row, then of its second, and so
            on, instead of a random walk.
        restart: probability that a random walk moves from its start, 0 to 1.
    """

    graph: NDArray[Any]
    order: NDArray[np.int64]
    key: np.uint64
    breadth: bool
    restart: float


def disjoint(walker: Walker, batch_size: int, advance: Callable[[int], None]) -> NDArray[np.int64]:
    """Collect batches one after the other, of rows that are in no earlier batch: int64 (N,).

    Args:
        walker: how to collect.
        batch_size: rows of a batch; the last is shorter if N is not a multiple.
        advance: called with the number of rows taken.
    """
    n = len(walker.order)
    used, reached = np.zeros(n, np.bool_), np.zeros(n, np.int32)
    rows = np.empty(n, np.int64)
    step = _AT_ONCE * batch_size
    cursor = 0
    for start in range(0, n, step):
        block = rows[start : start + step]
        first = start // batch_size
        cursor = _collect(block, batch_size, first, walker, cursor, used, reached)
        advance(len(block))
    return rows


def independent(
    walker: Walker, batch_size: int, num_batches: int, advance: Callable[[int], None]
) -> NDArray[np.int64]:
    """Collect independent batches, each of distinct rows and with a random start: int64 (entries,),
    batch after batch.

    Args:
        walker: how to collect.
        batch_size: rows of every batch, at most N.
        num_batches: number of batches.
        advance: called with the number of rows taken.
    """
    rows = np.empty(num_batches * batch_size, np.int64)

    def work(first: int) -> int:
        block = rows[first * batch_size : (first + _AT_ONCE) * batch_size]
        used, reached = (np.zeros(len(walker.order), kind) for kind in (np.bool_, np.int32))
        _collect(block, batch_size, first, walker, -1, used, reached)
        return len(block)

    for done in in_order(work, range(0, num_batches, _AT_ONCE)):
        advance(done)
    return rows


def complete(
    walker: Walker, batch_size: int, wanted: int, advance: Callable[[int], None]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Collect batches until enough rows are in one. Each starts at a random row that is in no
    batch; its other rows may be in several. So does ``main.py`` of the authors' repository,
    THUDM/BatchSampler.

    Args:
        walker: how to collect.
        batch_size: rows of every batch, at most N.
        wanted: number of distinct rows at which to stop.
        advance: called with the number of rows that are in a batch for the first time.

    Returns:
        int64 (entries,), the rows of all batches, and int64 (left,), the rows in none, in random
        order.
    """
    used, met = np.zeros((2, len(walker.order)), np.bool_)
    reached = np.zeros(len(walker.order), np.int32)
    batches: list[NDArray[np.int64]] = []
    start = seen = 0
    while seen < wanted:
        while met[walker.order[start]]:
            start += 1
        batch = np.empty(batch_size, np.int64)
        _collect(batch, batch_size, len(batches), walker, start, used, reached)
        new = batch_size - int(met[batch].sum())
        met[batch], used[batch], reached[batch] = True, False, 0
        batches.append(batch)
        seen += new
        advance(new)
    return np.concatenate(batches), walker.order[~met[walker.order]]


@njit
def _collect(rows, size, first, walker, cursor, used, reached):  # type: ignore[no-untyped-def]
    """Fill ``rows``, batch after batch."""
    for begin in range(0, rows.size, size):
        own = stream(walker.key, first + begin // size)
        batch = rows[begin : begin + size]
        cursor = _grow(batch, walker, own, cursor, used, reached)
        if cursor < 0:
            used[batch] = False
            reached[batch] = 0
    return cursor


@njit
def _grow(batch, walker, own, cursor, used, reached):  # type: ignore[no-untyped-def]
    """Fill a batch (algorithm 3; section 4.2 on breadth first).

    If ``cursor`` is below 0, batches are independent and their starts are drawn; else the start is
    the next row of the walker's order. ``reached[i]`` counts the neighbours of i that are known to
    be used. Batch rows before ``front`` have no unused neighbour left.
    """
    graph, order, _, breadth, restart = walker
    draws = misses = front = count = 0
    start = here = new = np.int64(-1)
    while count < batch.size:
        if not breadth and start >= 0 and misses < PATIENCE:
            leave = start if unit(own, draws) < restart else here
            here = _move(leave, graph, unit(own, draws + 1))
            draws += 2
            if used[here]:
                misses += 1
                continue
            new = here
        else:
            new, front = _nearest_new(batch, front, count, graph, used, reached)
        if new < 0:
            drawn = cursor if cursor >= 0 else below(own, draws, order.size)
            draws += cursor < 0
            drawn = _next_new(order, drawn, used)
            cursor = drawn if cursor >= 0 else cursor
            start = new = order[drawn]
        batch[count] = here = new
        used[new] = True
        count += 1
        misses = 0
    return cursor


@njit
def _degree(row, graph):  # type: ignore[no-untyped-def]
    """Return the number of neighbours of a row, nearly always K."""
    k = graph.shape[1]
    while k and graph[row, k - 1] < 0:
        k -= 1
    return k


@njit
def _move(row, graph, draw):  # type: ignore[no-untyped-def]
    """Return the neighbour that ``draw``, in [0, 1), selects; the row itself if it has none."""
    k = _degree(row, graph)
    return np.int64(graph[row, np.int64(draw * k)]) if k else np.int64(row)


@njit
def _nearest_new(batch, front, count, graph, used, reached):  # type: ignore[no-untyped-def]
    """Return the most similar unused neighbour of the earliest batch row that has one, or -1.

    Rows do not become unused while a batch is filled, so each neighbour is examined once.
    """
    while front < count:
        row = batch[front]
        known = _degree(row, graph)
        while reached[row] < known:
            neighbor = np.int64(graph[row, reached[row]])
            if not used[neighbor]:
                return neighbor, front
            reached[row] += 1
        front += 1
    return np.int64(-1), front


@njit
def _next_new(order, place, used):  # type: ignore[no-untyped-def]
    """Return the first place from ``place``, in a circle, with an unused row; there must be one."""
    while used[order[place]]:
        place = place + 1 if place + 1 < order.size else 0
    return place
