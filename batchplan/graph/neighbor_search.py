"""The search for nearest neighbours on the CPU: one product of low precision for both directions.

A row of a tile compares one x_i with y, and a column one y_j with x. So one pass over the tiles
fills the shortlists of both directions. If y is x, half a pass fills the only ones:

1. Guess a floor for each row and column from a sample of their similarities.
2. Screen: the entries of a tile that may reach the bar of their row or of their column.
3. Score these candidates exactly, and drop the pairs that break the guard.
4. Offer them to the shortlists, whose bars rise.

Guesses change only the time: a row with a list that is not full at the end is searched again
without a floor. Threads change nothing: a list keeps the same k in any order of offers.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, sqrt
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data import RowMatrix
from batchplan.data.rows import load_rows, to_float32
from batchplan.graph.screen import Keys, Queries, queries_from, sure_entry
from batchplan.graph.shortlists import Shortlists
from batchplan.guard.apart import apart
from batchplan.guard.rules import Rules
from batchplan.kernels import (
    AHEAD,
    LANES,
    dot,
    exact_dot,
    insert,
    njit,
    prefetch,
    reaching,
    trailing_zeros,
)
from batchplan.runtime import silent
from batchplan.threads import block_height, in_blocks

TILE = 1024  # columns, and at most twice as many rows; the product is scanned while in cache
_SAMPLED, _MOST_SAMPLED = 1024, 4096  # rows that floors are guessed from
_GROUP = 64  # candidates whose rows stay in cache
_CPU = torch.device("cpu")

Advance = Callable[[int], None]
Indices = NDArray[np.int64]
Entries = NDArray[Any]  # int16 or int32: `ordered` bits of entries of tiles


@dataclass(frozen=True, eq=False)
class SearchData:
    """The data of a search for the nearest rows of Y for rows of X, and for the reverse.

    Attributes:
        x: N rows of d dimensions.
        keys: all rows of Y, also in the screening type.
        normalize: whether rows are of unit length.
        rules: exclude the pairs that break them.
    """

    x: RowMatrix
    keys: Keys
    normalize: bool
    rules: Rules

    def lists(self, k: int) -> Shortlists:
        """Empty lists of the k best for each of N rows."""
        return Shortlists(len(self.keys.rows), k, self.middle, self.dropped)

    @cached_property
    def other_error(self) -> float:
        """The most by which a float32 product of the rules' rows, summed in any order, differs from
        the exact one."""
        if not len(self.rules.x):
            return 0.0
        x, y = (float(rows.norm(dim=1).max()) for rows in (self.rules.x, self.rules.y))
        return (self.rules.x.shape[1] + 8) * 2.0**-23 * x * y

    @property
    def middle(self) -> float:
        """The mean similarity, which is subtracted from the entries of tiles."""
        return max(0.0, float(self.keys.query_mean.double() @ self.keys.key_mean.double()))

    @property
    def dropped(self) -> int:
        """How many bits fewer than float32 the screening type has."""
        return 32 - 8 * self.keys.operand.itemsize

    def queries(self, rows: Indices) -> Queries:
        """Some rows of X, ready for the screen."""
        first, end = int(rows[0]), int(rows[-1]) + 1
        if end - first == len(rows):
            loaded = load_rows(self.x, first, end, _CPU, self.normalize)
        else:
            loaded = to_float32(torch.from_numpy(self.x.take(rows)), _CPU, self.normalize)
        return queries_from(loaded, self.keys, self.middle, inf)


def search(
    problem: SearchData, forward: Shortlists | None, backward: Shortlists | None, advance: Advance
) -> None:
    """Fill the lists of the nearest y of every x (``forward``) and of the nearest x of every y
    (``backward``). If Y is X, both are the same object.

    Args:
        advance: called with the number of rows of X done, in order.
    """
    n = len(problem.keys.rows)
    all_rows = np.arange(n)
    size = min(n, max(_SAMPLED, min(4 * _width(forward, backward), _MOST_SAMPLED)))
    sample = np.sort(np.random.Generator(np.random.Philox(0)).choice(n, size, replace=False))
    if backward is not None:
        _guess_columns(problem, backward, sample)
    _sweep(problem, all_rows, all_rows, forward, backward, sample, advance)
    if forward is not None and (rows := forward.short()).size:
        forward.begin(rows, np.full(len(rows), -inf, np.float32))
        _sweep(problem, rows, all_rows, forward, None, None, silent)
    if backward is not None and (columns := backward.short()).size:
        backward.begin(columns, np.full(len(columns), -inf, np.float32))
        _sweep(problem, all_rows, columns, None, backward, None, silent)


def _width(*both: Shortlists | None) -> int:
    return next(lists.names.shape[1] for lists in both if lists is not None)


def _rank(k: int, sampled: int, num_rows: int) -> int:
    """The rank in a sample that is almost surely below the k-th of all. The number of the k best in
    the sample is Poisson distributed, and this is several standard errors above its mean."""
    expected = k * sampled / num_rows
    return ceil(expected + 2.5 * sqrt(expected) + 1.5)


def _guess_columns(problem: SearchData, lists: Shortlists, sample: Indices) -> None:
    """Set the floors of all columns from a sample of rows."""
    keys, queries = problem.keys, problem.queries(sample)
    rules = problem.rules.swapped().compiled()

    def work(start: int, stop: int) -> None:
        tile = keys.operand[start:stop] @ queries.operand.T
        values = tile.float().add_(problem.middle).sub_(queries.error)
        _set_floors(lists, values, np.arange(start, stop), sample, rules)

    in_blocks(work, len(keys.rows), TILE)


def _set_floors(
    lists: Shortlists,
    values: torch.Tensor,
    rows: Indices,
    sample: Indices,
    rules: tuple[NDArray[np.generic], ...],
) -> None:
    """Set the floors of some rows from their similarities to the sample, (rows, sample)."""
    num_rows, k = lists.names.shape
    floors = np.empty(len(rows), np.float32)
    kept = np.empty(_rank(k, len(sample), num_rows), np.float32)
    _guess(values.numpy(), rows, sample, kept, rules, floors)
    lists.begin(rows, floors)


def _sweep(
    problem: SearchData,
    rows: Indices,
    columns: Indices,
    forward: Shortlists | None,
    backward: Shortlists | None,
    sample: Indices | None,
    advance: Advance,
) -> None:
    """Offer each pair of some rows of X and some rows of Y once to the lists that may take it.

    With a ``sample``, the floors of the rows are guessed first, unless rows and columns share
    lists.
    """
    keys = problem.keys
    n = len(keys.rows)
    samples = keys.operand if sample is None else keys.operand[torch.from_numpy(sample)]
    keys = keys if len(columns) == n else keys.among(columns)
    half = forward is backward
    rules = problem.rules.compiled()
    height = block_height(len(rows), 2 * TILE)
    # No other block has these rows, unless they are columns too.
    locks = [Lock() for _ in range(0, len(columns), TILE)]

    def work(start: int, stop: int) -> None:
        ids = rows[start:stop]
        queries = problem.queries(ids)
        if forward is not None and not half and sample is not None:
            values = (queries.operand @ samples.T).float()
            values += problem.middle - queries.error[:, None]
            _set_floors(forward, values, ids, sample, rules)
        screen = _Screen(problem, keys, queries, ids, half)
        for first in range(start // TILE * TILE if half else 0, len(columns), TILE):
            i, j, scores = screen.tile(columns[first : first + TILE], first, forward, backward)
            if not len(i):
                continue
            if forward is not None:
                with _held(locks[start // TILE : -(-stop // TILE)] if half else []):
                    forward.offer(i, j, scores)
            if backward is not None:
                with locks[first // TILE]:
                    backward.offer(j, i, scores)

    in_blocks(work, len(rows), height, advance)


@contextmanager
def _held(locks: list[Lock]) -> Iterator[None]:
    """Hold some locks, taken in order so that threads cannot deadlock."""
    with ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        yield


class _Screen:
    """Compares a block of rows with one tile of columns after another."""

    def __init__(
        self, problem: SearchData, keys: Keys, queries: Queries, rows: Indices, half: bool
    ) -> None:
        self._keys, self._queries, self._rows, self._half = keys, queries, rows, half
        self._rules = problem.rules.compiled()
        self._other_error = problem.other_error
        self._bits = torch.int16 if problem.dropped else torch.int32
        entry: type[np.signedinteger[Any]] = np.int16 if problem.dropped else np.int32
        self._never = np.full(2 * TILE, np.iinfo(entry).max, entry)
        # With a reference, entries of tiles do not show which pairs reach a ceiling.
        ceilings = _NONE if problem.rules.referred else problem.rules.ceilings.numpy()
        self._ceilings = _sure_entries(
            ceilings, problem.middle, float(queries.error.max()), problem.dropped,
            np.empty(0, entry),
        )  # fmt: skip
        size = len(rows) * TILE
        # Memory is mapped when it is written, and few entries are candidates.
        self._found = np.empty(size, np.int64), np.empty(size, np.int64)
        self._scores = np.empty(size, np.float32)

    def tile(
        self,
        columns: Indices,
        first: int,
        forward: Shortlists | None,
        backward: Shortlists | None,
    ) -> tuple[Indices, Indices, NDArray[np.float32]]:
        """The rows, columns and scores of the pairs that the lists may take."""
        tile = self._queries.operand @ self._keys.operand[first : first + TILE].T
        width = tile.shape[1]
        least = self._limits(forward, self._rows, len(self._rows))[: len(self._rows)]
        limits = self._limits(backward, columns, width)[:width]
        count = _screen(
            tile.view(self._bits).numpy(), least, limits, self._at_ceilings(self._rows, len(least)),
            self._at_ceilings(columns, width), *self._found,
        )  # fmt: skip
        part = self._keys.rows[first : first + TILE].numpy()
        bars = (_NONE if lists is None else lists.bars for lists in (forward, backward))
        count = _score(
            count, self._queries.rows.numpy(), part, self._rows, columns, *bars, self._half,
            self._rules, (self._queries.dot_error, self._other_error), *self._found, self._scores,
        )  # fmt: skip
        i, j = (part[:count] for part in self._found)
        return i, j, self._scores[:count]

    def _limits(self, lists: Shortlists | None, ids: Indices, size: int) -> Entries:
        return self._never if lists is None else self._padded(lists.limits, ids, size)

    def _at_ceilings(self, ids: Indices, size: int) -> Entries:
        return self._padded(self._ceilings, ids, size) if self._ceilings.size else self._ceilings

    def _padded(self, entries: Entries, ids: Indices, size: int) -> Entries:
        """The entries of some rows, padded with values that no entry of a tile reaches."""
        some = self._never[:size].copy()
        some[: len(ids)] = entries[ids]
        return some


_NONE = np.empty(0, np.float32)


@njit
def _guess(values, rows, columns, kept, rules, floors):  # type: ignore[no-untyped-def]
    """Set the floor of each row to the lowest of its largest values; ``kept`` has room for them. Of
    a guess, float32 products are exact enough."""
    separate, ceilings, x, y, referred = rules
    names = np.zeros(kept.size, np.int64)
    for r in range(rows.size):
        i = rows[r]
        kept[:] = -np.inf
        for c in range(columns.size):
            value, j = values[r, c], columns[c]
            if value <= kept[-1] or i == j or apart(i, j, separate):
                continue
            near = dot(x[i], y[j]) if referred else value
            if len(x):
                near = max(near, dot(y[i], x[j]))
            if not (ceilings.size and near >= min(ceilings[i], ceilings[j])):
                insert(value, j, kept, names)
        floors[r] = kept[-1]


@njit
def _sure_entries(ceilings, middle, error, dropped, like):  # type: ignore[no-untyped-def]
    entries = np.empty(ceilings.size, like.dtype)
    for i in range(ceilings.size):
        entries[i] = sure_entry(ceilings[i], middle, error, dropped)
    return entries


@njit
def _screen(  # type: ignore[no-untyped-def]
    bits, least, limits, row_ceilings, ceilings, rows, columns
):
    """Write the places of the entries of a tile that reach the limit of their row or column, but
    not the ceiling of either, and count them."""
    count = 0
    for r in range(least.size):
        row = bits[r]
        for start in range(0, limits.size, LANES):
            hits = reaching(row, limits, start, least[r])
            if hits and ceilings.size:
                hits &= ~reaching(row, ceilings, start, row_ceilings[r])
            while hits:
                rows[count] = r
                columns[count] = start + trailing_zeros(hits)
                count += 1
                hits &= hits - np.uint64(1)
    return count


@njit
def _score(  # type: ignore[no-untyped-def]
    count, queries, keys, rows, columns, forward, backward, half, rules, errors,
    found_rows, found_columns, scores,
):  # fmt: skip
    """Replace places by the numbers of rows and columns, keep the pairs that a list may take, and
    count them.

    Pairs go through the tests in groups. Rows are prefetched before they are needed.
    """
    separate, ceilings, x, y, referred = rules
    error, other_error = errors
    at_ceiling = ceilings.size > 0 and not referred
    places = np.empty(_GROUP, np.int64)
    bars, lowest = np.empty(_GROUP, np.float32), np.full(_GROUP, np.float32(np.inf))
    kept = 0
    for start in range(0, count, _GROUP):
        left = 0
        for at in range(start, min(start + _GROUP, count)):
            i, j = rows[found_rows[at]], columns[found_columns[at]]
            if i == j or (half and j < i) or apart(i, j, separate):
                continue
            bar = np.float32(np.inf)
            if forward.size:
                bar = forward[i]
            if backward.size:
                bar = min(bar, backward[j])
            if at_ceiling:
                lowest[left] = min(ceilings[i], ceilings[j])
            places[left], bars[left] = at, bar
            left += 1
        # Near a ceiling the screen lets many pairs pass; a float32 product refuses most at half the
        # cost of an exact one.
        if at_ceiling:
            some, left = left, 0
            for t in range(some):
                prefetch(keys, found_columns[places[min(t + AHEAD, some - 1)]])
                about = dot(queries[found_rows[places[t]]], keys[found_columns[places[t]]])
                places[left], bars[left], lowest[left] = places[t], bars[t], lowest[t]
                left += (about + error >= bars[t]) & (about - error < lowest[t])
        some, left = left, 0
        for t in range(some):
            at = places[t]
            if not at_ceiling:
                prefetch(keys, found_columns[places[min(t + AHEAD, some - 1)]])
            score = exact_dot(queries[found_rows[at]], keys[found_columns[at]])
            places[left], lowest[left], scores[start + left] = at, lowest[t], score
            left += (score >= bars[t]) & (score < lowest[t])
        for t in range(left):
            at = places[t]
            i, j = rows[found_rows[at]], columns[found_columns[at]]
            if len(x):
                prefetch(x, columns[found_columns[places[min(t + AHEAD, left - 1)]]])
                limit = min(ceilings[i], ceilings[j])
                if _reaches(y[i], x[j], limit, other_error):
                    continue
                if referred and _reaches(x[i], y[j], limit, other_error):
                    continue
            found_rows[kept], found_columns[kept], scores[kept] = i, j, scores[start + t]
            kept += 1
    return kept


@njit
def _reaches(a, b, limit, error):  # type: ignore[no-untyped-def]
    """Whether the exact product of two rows reaches a limit; the float32 product is within
    ``error`` of it."""
    about = dot(a, b)
    return about >= limit - error and (about >= limit + error or exact_dot(a, b) >= limit)
