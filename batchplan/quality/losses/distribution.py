"""Percentiles and a histogram of the similarities in the batches of a plan."""

from functools import reduce
from typing import Any

import numpy as np
import torch

from batchplan.plans.steps import take_batches
from batchplan.quality.losses.in_batches import equal_batches, gather
from batchplan.quality.pairs import Pairs
from batchplan.typing import Float64Array, Int64Array

PERCENTS = (1, 5, 25, 50, 75, 95, 99)  # of `Evaluation.similarity_percentiles`
_BINS = 40  # of 0.05 under cosine similarity
_PAIRS = 1 << 20  # of the sampled batches, roughly
_SIDE = 1 << 10  # rows of a batch, at most


def distribution_figures(plan: Float64Array, random: Float64Array, bound: float) -> dict[str, Any]:
    """Return the fields of `Evaluation` about similarities.

    Args:
        plan, random: similarities of both, as `similarities_within` returns them.
        bound: the largest possible magnitude.
    """
    if not plan.size:
        return {"similarity_percentiles": {}, "similarity_histogram": {}}
    ends = -bound, bound  # rounding may exceed them
    (own, edges), (other, _) = (
        np.histogram(some.clip(*ends), _BINS, ends) for some in (plan, random)
    )
    counts = {"edges": edges, "plan": own / own.sum(), "random": other / other.sum()}
    percentiles = zip(map(str, PERCENTS), np.percentile(plan, PERCENTS).tolist(), strict=True)
    return {
        "similarity_percentiles": dict(percentiles),
        "similarity_histogram": {name: values.tolist() for name, values in counts.items()},
    }


def similarities_within(pairs: Pairs, rows: Int64Array, offsets: Int64Array) -> Float64Array:
    """Return s_ij, i != j, of evenly spaced batches with about `_PAIRS` pairs, or of all.

    Args:
        rows: int64 (entries,), the rows of all batches.
        offsets: int64 (batches + 1,), where each batch starts in them.
    """
    sizes = np.diff(offsets)
    count = min(len(sizes), max(1, _PAIRS // int(sizes.max()) ** 2))
    rows, offsets = take_batches(rows, offsets, np.arange(count) * len(sizes) // count)
    found = []
    for entries in equal_batches(offsets, pairs.x.dim):
        members = rows[entries[:, :: -(-entries.shape[1] // _SIDE)]]
        x, documents = gather(pairs.x, members), (pairs.y, *pairs.mined.sides)
        largest = reduce(torch.maximum, (x @ gather(side, members).mT for side in documents))
        different = ~np.eye(members.shape[1], dtype=np.bool_)
        found.append(largest.cpu().numpy()[:, different].ravel())
    return np.concatenate(found)
