"""Find rows that must not share a batch, and separate them at the least cost of loss."""

from concurrent.futures import Executor

import numpy as np

from batchplan.guard.separation import mended
from batchplan.kernels import njit
from batchplan.refinement.blocks import APART, BROKEN, SAME_ROW, SIMILAR
from batchplan.refinement.kernel import REPAIR
from batchplan.refinement.masks import masks_of
from batchplan.refinement.objective import Objective
from batchplan.refinement.rounds import alike, improve_round
from batchplan.runtime import Runtime, full_float32
from batchplan.threads import single_threads
from batchplan.typing import Int32Array, Int64Array

_ROUNDS, _LEAST = 12, 0.01  # random rounds stop if 12 of them separate less than 1% of the pairs
_TRIES = 16  # with other batches, without an improvement; then a batch is left as it is
_REPAIR = 6  # the generator stream of partners


@full_float32()
def repair_rows(
    rows: Int64Array, offsets: Int64Array, objective: Objective, runtime: Runtime
) -> tuple[Int64Array, int]:
    """Separate pairs that break the guard by swaps between batches.

    In each round, every batch with such pairs is paired with a random batch, those with most pairs
    first. If the rows of every batch have one kind, both batches have the same kind. When these
    rounds hardly help, batches with the most rows of a group are paired with those with the fewest,
    until each group is spread evenly: a batch has the floor or the ceiling of its share, also if
    the group has more rows than there are batches. With a limit, a batch is left as it is after
    `_TRIES` tries without an improvement, so that time grows as N. If the penalty is finite, pairs
    that are too similar stay, because the objective has weighed them. Known answers that are left
    are separated at any cost of loss; see `mended`.

    Args:
        rows: int64 (entries,), the rows of all batches, none twice within a batch.
        offsets: int64 (batches + 1,), where each batch starts in them.
        objective: the guard, and the loss to keep.
        runtime: seed of the random pairs of batches, progress.

    Returns:
        The new rows, and the number of pairs that still break the guard.
    """
    rows = rows.copy()
    generator = runtime.generator(_REPAIR)
    kinds = _kinds_of_batches(rows, offsets, objective.kinds)
    with single_threads() as pool, runtime.stage("repair") as advance:
        least = SIMILAR if objective.penalty >= APART else BROKEN
        broken = _count_broken(rows, offsets, objective, least, pool)
        left, failed = [int(broken.sum())], np.zeros(len(broken), np.int64)
        limited = least == SIMILAR and objective.guard.ceilings is not None
        evening = False
        while len(broken) > 1 and left[-1]:
            if evening:
                pairs = _uneven(rows, offsets, objective.guard.apart.codes, kinds)
            else:
                seeking = np.where(limited & (failed >= _TRIES), 0, broken)
                pairs = _partners(seeking, kinds, generator)
            if not len(pairs):
                if evening:
                    break
                evening = True
                continue
            changed = improve_round(rows, offsets, pairs, objective, True, REPAIR, pool)[1]
            touched = np.unique(pairs[changed])
            failed[pairs] += 1
            failed[touched] = 0
            broken[touched] = _count_broken(rows, offsets, objective, least, pool, touched)
            left.append(int(broken.sum()))
            advance(1)
            if evening and left[-1] >= left[-2]:
                break
            evening |= len(left) > _ROUNDS and left[-1] > (1 - _LEAST) * left[-1 - _ROUNDS]
        if objective.guard.apart.spans.size and left[-1]:
            rows = mended(rows, offsets, objective.guard.apart, generator, objective.kinds)
            broken = _count_broken(rows, offsets, objective, SIMILAR, pool)
        elif least != SIMILAR:
            broken = _count_broken(rows, offsets, objective, SIMILAR, pool)
    return rows, int(broken.sum())


def count_broken(rows: Int64Array, offsets: Int64Array, objective: Objective) -> int:
    """Return the number of pairs of rows of a batch that break the guard; arguments as of
    `repair_rows`."""
    with single_threads() as pool:
        return int(_count_broken(rows, offsets, objective, SIMILAR, pool).sum())


def _partners(broken: Int64Array, kinds: Int64Array, generator: np.random.Generator) -> Int64Array:
    """int64 (K, 2): pairs of batches of the same kind, each batch in one pair at most. The first
    batch has ``broken`` pairs of rows, the second is random."""
    order = np.lexsort((np.arange(len(broken)), -broken))
    others = generator.permutation(len(broken))
    others = others[np.argsort(kinds[others], kind="stable")]
    starts = np.searchsorted(kinds[others], np.arange(kinds.max() + 2))
    pairs: Int64Array = _match(order, broken, kinds, others, starts[:-1].copy(), starts[1:])
    return pairs


@njit
def _match(order, broken, kinds, others, following, ends):  # type: ignore[no-untyped-def]
    free = np.ones(order.size, np.bool_)
    pairs = np.empty((order.size // 2, 2), np.int64)
    count = 0
    for batch in order:
        if broken[batch] == 0:
            break
        if not free[batch]:
            continue
        free[batch] = False
        kind = kinds[batch]
        place = following[kind]
        while place < ends[kind] and not free[others[place]]:
            place += 1
        following[kind] = place
        if place == ends[kind]:
            continue
        free[others[place]] = False
        pairs[count, 0], pairs[count, 1] = batch, others[place]
        count += 1
    return pairs[:count]


def _uneven(
    rows: Int64Array, offsets: Int64Array, codes: Int32Array, kinds: Int64Array
) -> Int64Array:
    """int64 (K, 2): pairs of batches of the same kind, each batch in one pair at most. The first
    batch has the most rows of a group, the second at least two fewer."""
    batches = np.repeat(np.arange(len(kinds)), np.diff(offsets))
    ordered = np.argsort(kinds, kind="stable")
    starts = np.searchsorted(kinds[ordered], np.arange(kinds.max() + 2))
    free, found = np.ones(len(kinds), np.bool_), [np.empty((0, 2), np.int64)]
    for own in codes:
        entries = np.argsort(own[rows], kind="stable")
        groups = own[rows][entries]
        found.append(_pair_extremes(groups, batches[entries], kinds, ordered, starts, free))
    return np.concatenate(found)


@njit
def _pair_extremes(groups, batches, kinds, ordered, starts, free):  # type: ignore[no-untyped-def]
    """The pairs of `_uneven` for one array of codes.

    Args:
        groups: int32 (entries,), the code of each entry, rising.
        batches: int64 (entries,), the batch of each entry.
        kinds: int64 (batches,), of each batch.
        ordered: int64 (batches,), all batches by kind: batches of kind k are from ``starts[k]`` to
            ``starts[k + 1]``.
        starts: int64 (kinds + 1,).
        free: bool (batches,), whether a batch is in no pair yet; updated.
    """
    pairs = np.empty((free.size // 2, 2), np.int64)
    counts = np.zeros(free.size, np.int64)
    most, following = np.zeros(starts.size - 1, np.int64), np.empty(starts.size - 1, np.int64)
    found, start = 0, 0
    while start < groups.size:
        stop = start
        while stop < groups.size and groups[stop] == groups[start]:
            stop += 1
        own = batches[start:stop]
        if groups[start] >= 0 and own.size > 1:
            for batch in own:
                counts[batch] += 1
                most[kinds[batch]] = max(most[kinds[batch]], counts[batch])
                following[kinds[batch]] = starts[kinds[batch]]
            for batch in own:
                kind = kinds[batch]
                if counts[batch] < max(most[kind], 2) or not free[batch]:
                    continue
                place, end = following[kind], starts[kind + 1]
                while place < end and not (
                    free[ordered[place]] and counts[ordered[place]] <= most[kind] - 2
                ):
                    place += 1
                following[kind] = place
                if place < end:
                    other = ordered[place]
                    pairs[found, 0], pairs[found, 1] = batch, other
                    free[batch] = free[other] = False
                    found += 1
            for batch in own:
                counts[batch] = most[kinds[batch]] = 0
        start = stop
    return pairs[:found]


def _kinds_of_batches(rows: Int64Array, offsets: Int64Array, kinds: Int64Array) -> Int64Array:
    """The kind of each batch, from 0; all 0 if a batch has rows of several kinds."""
    count = len(offsets) - 1
    if not len(kinds):
        return np.zeros(count, np.int64)
    row_kinds = kinds[rows]
    firsts = row_kinds[offsets[:-1]]
    if (row_kinds != np.repeat(firsts, np.diff(offsets))).any():
        return np.zeros(count, np.int64)
    return np.unique(firsts, return_inverse=True)[1]


def _count_broken(
    rows: Int64Array,
    offsets: Int64Array,
    objective: Objective,
    least: int,
    pool: Executor,
    batches: Int64Array | None = None,
) -> Int64Array:
    """int64: in each of ``batches``, or of all, the number of pairs of rows that break the guard:
    with relations from ``least`` to BROKEN."""
    batches = np.arange(len(offsets) - 1) if batches is None else batches
    sizes = np.diff(offsets)[batches]
    out = np.zeros(len(batches), np.int64)

    def work(chosen: Int64Array) -> None:
        places = offsets[batches[chosen], None] + np.arange(sizes[chosen[0]])
        masks = masks_of(objective, rows[places])  # which have each pair twice
        out[chosen] = ((masks >= least) & (masks < SAME_ROW)).sum(axis=(1, 2)) // 2

    for _ in pool.map(work, alike(sizes[:, None])):
        pass
    return out
