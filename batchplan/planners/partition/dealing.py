"""Which rows share a mega-batch: each is dealt rows at random, or similar ones, as many as its
batches take."""

from collections.abc import Callable

import numpy as np

from batchplan.options import Tail
from batchplan.planners.partition.mega_batch import MegaBatch
from batchplan.planners.partition.shares import shares_of
from batchplan.typing import Int64Array

Clusters = Callable[[Int64Array, Int64Array, Int64Array], Int64Array]


def deal(
    rows: Int64Array,
    sizes: Int64Array,
    count: int,
    generator: np.random.Generator,
    kinds: Int64Array | None = None,
    tail: Tail = "keep",
    clusters: Clusters | None = None,
) -> list[MegaBatch]:
    """Deal rows to mega-batches.

    Args:
        rows: int64 (n,), in rising order.
        sizes: int64 (P,), of their batches, falling; n in all. The first mega-batch gets the first
            of these.
        count: how many mega-batches; fewer where one would have a single batch, which would be
            random.
        generator: deals at random, unless there are ``clusters``.
        kinds: int64 (N,), the kind of every row there is, from 0 on, where each mega-batch is to
            have its share of each kind.
        tail: what becomes of a short last batch.
        clusters: finds clusters of similar rows, as
            `batchplan.planners.partition.similar.cluster_of_rows` does, given ``rows``, the room
            for each kind in each cluster, and the kinds.
    """
    count = min(count, len(sizes) // 2)
    if count <= 1:
        return [MegaBatch(rows, sizes, tail)]
    parts = np.array_split(sizes, count)
    room = np.array([[part.sum() for part in parts]])
    own = np.zeros(len(rows), np.int64) if kinds is None else kinds[rows]
    if kinds is not None:
        room = shares_of(own, room[0])
    if clusters is not None:
        mixed = rows[np.argsort(clusters(rows, room, own), kind="stable")]
    elif kinds is None:
        mixed = generator.permutation(rows)
    else:
        order = generator.permutation(len(rows))
        order = order[np.argsort(own[order], kind="stable")]
        homes = np.repeat(np.tile(np.arange(count), len(room)), room.ravel())
        mixed = rows[order[np.argsort(homes, kind="stable")]]
    shares = np.split(mixed, np.cumsum(room.sum(axis=0))[:-1])
    for share in shares:
        share.sort()
    return [MegaBatch(share, part, tail) for share, part in zip(shares, parts, strict=True)]
