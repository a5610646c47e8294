"""Which rows share a mega-batch: each is dealt rows at random, as many as its batches take."""

import numpy as np

from batchplan.options import Tail
from batchplan.planners.partition.layout import Int64Array, mixed_evenly
from batchplan.planners.partition.mega_batch import MegaBatch


def deal(
    rows: Int64Array,
    sizes: Int64Array,
    count: int,
    generator: np.random.Generator,
    kinds: Int64Array | None = None,
    tail: Tail = "keep",
) -> list[MegaBatch]:
    """Deal rows to mega-batches at random.

    Args:
        rows: int64 (n,), in rising order.
        sizes: int64 (P,), of their batches, falling; n in all. The first mega-batch gets the first
            of these.
        count: how many mega-batches; fewer where one would have a single batch, which would be
            random.
        kinds: int64 (N,), the kind of every row there is, from 0 on, where each mega-batch is to
            have its share of each kind.
        tail: what becomes of a short last batch.
    """
    count = min(count, len(sizes) // 2)
    if count <= 1:
        return [MegaBatch(rows, sizes, tail)]
    parts = np.array_split(sizes, count)
    taken = np.array([part.sum() for part in parts])
    ends = np.cumsum(taken)
    mixed = generator.permutation(rows)
    if kinds is not None:
        quotas = mixed_evenly(kinds[rows], taken)
        mixed = mixed[np.argsort(kinds[mixed], kind="stable")]
        homes = np.repeat(np.tile(np.arange(count), len(quotas)), quotas.ravel())
        mixed = mixed[np.argsort(homes, kind="stable")]
    shares = np.split(mixed, ends[:-1])
    for share in shares:
        share.sort()
    return [MegaBatch(share, part, tail) for share, part in zip(shares, parts, strict=True)]
