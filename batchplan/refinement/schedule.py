"""Chooses the pairs of batches to visit, and their order: first those that promise most gain."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from batchplan.graph.affinity import Affinity
from batchplan.kernels import insert, njit, place_of
from batchplan.typing import Int64Array

_EAGER = 1.5  # a batch attracts a row even if it has fewer of the row's neighbours than its own


@dataclass(eq=False)
class Visits:
    """When pairs of batches were visited, and when batches changed, as numbers of rounds.

    A pair is visited again only if one of its batches has changed since its last visit.

    Attributes:
        changed: int64 (batches,), the round of the last change of each batch.
        keys: int64 (pairs,), a number for each visited pair, rising.
        rounds: int64 (pairs,), the round of its last visit.
    """

    changed: Int64Array
    keys: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    rounds: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))

    def record(self, pairs: Int64Array, rounds: Int64Array) -> None:
        """Record visits of pairs (K, 2), the lower batch first, in these rounds (K,)."""
        keys = np.concatenate([pairs[:, 0] * len(self.changed) + pairs[:, 1], self.keys])
        rounds = np.concatenate([rounds, self.rounds])
        self.keys, first = np.unique(keys, return_index=True)  # the newest visit comes first
        self.rounds = rounds[first]


def promising_pairs(
    affinity: Affinity, rows: Int64Array, offsets: Int64Array, visits: Visits, partners: int
) -> Int64Array:
    """int64 (K, 2): pairs of batches that attract each other's rows, the strongest pull first.

    A batch pulls a row by the weight of the row's neighbours in it, times `_EAGER`, less the weight
    of those in the row's own batch. Each batch is paired with the ``partners`` batches that pull
    its rows most.
    """
    count = len(offsets) - 1
    batch_of_row = np.full(affinity.num_rows, -1, np.int64)
    batch_of_row[rows] = np.repeat(np.arange(count), np.diff(offsets))
    graph = affinity.indptr, affinity.indices, affinity.weights
    seen = visits.changed, visits.keys, visits.rounds
    named, pulls = _strongest_pulls(graph, rows, offsets, batch_of_row, seen, partners)
    batch, place = np.nonzero(named >= 0)
    other = named[batch, place]
    keys = np.minimum(batch, other) * count + np.maximum(batch, other)
    keys, inverse = np.unique(keys, return_inverse=True)
    promise = np.bincount(inverse, weights=pulls[batch, place])
    keys = keys[np.lexsort((keys, -promise))]
    return np.stack([keys // count, keys % count], axis=1)


@njit
def _strongest_pulls(graph, rows, offsets, batch_of_row, seen, partners):  # type: ignore[no-untyped-def]
    indptr, indices, weights = graph
    count = offsets.size - 1
    named = np.full((count, partners), -1, np.int64)
    pulls = np.zeros((count, partners))
    total, held = np.zeros(count), np.zeros(count)
    met, touched = np.empty(count, np.int64), np.empty(count, np.int64)
    for batch in range(count):
        num_met = 0
        for place in range(offsets[batch], offsets[batch + 1]):
            row = rows[place]
            num_touched = 0
            for e in range(indptr[row], indptr[row + 1]):
                other = batch_of_row[indices[e]]
                if other >= 0:
                    if held[other] == 0:
                        touched[num_touched] = other
                        num_touched += 1
                    held[other] += weights[e]
            own = held[batch]
            for t in range(num_touched):
                other = touched[t]
                pull = _EAGER * held[other] - own
                held[other] = 0
                if other != batch and pull > 0:
                    if total[other] == 0:
                        met[num_met] = other
                        num_met += 1
                    total[other] += pull
        for t in range(num_met):
            other = met[t]
            pull = total[other]
            total[other] = 0
            fits = (pull, -other) > (pulls[batch, -1], -named[batch, -1])
            if fits and not _seen(batch, other, count, seen):
                insert(pull, other, pulls[batch], named[batch])
    return named, pulls


@njit(inline="always")
def _seen(batch, other, count, seen):  # type: ignore[no-untyped-def]
    """Whether the pair was visited since its batches last changed."""
    changed, keys, visited = seen
    key = min(batch, other) * count + max(batch, other)
    place = place_of(key, keys, 0, keys.size)
    if place == keys.size or keys[place] != key:
        return False
    return visited[place] >= max(changed[batch], changed[other])


def in_rounds(pairs: Int64Array, num_batches: int, most: int) -> list[Int64Array]:
    """Divide pairs of batches into rounds in which no batch occurs twice.

    Each pair goes into the first round in which both of its batches are free.

    Args:
        pairs: int64 (K, 2), by priority.
        num_batches: number of batches.
        most: number of rounds. Pairs that fit into no round are left out.
    """
    chosen = _choose_rounds(pairs, num_batches, most)
    order = np.argsort(chosen, kind="stable")
    ends = np.searchsorted(chosen[order], np.arange(most + 1))
    return [pairs[order[a:b]] for a, b in pairwise(ends) if a < b]


@njit
def _choose_rounds(pairs, num_batches, most):  # type: ignore[no-untyped-def]
    busy = np.zeros((num_batches, most), np.bool_)
    chosen = np.full(len(pairs), most, np.int64)
    for k in range(len(pairs)):
        first, second = busy[pairs[k, 0]], busy[pairs[k, 1]]
        for slot in range(most):
            if not (first[slot] or second[slot]):
                chosen[k] = slot
                first[slot] = second[slot] = True
                break
    return chosen
