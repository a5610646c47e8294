"""What GCBS minimises: bounds of the gap, assignment objectives, and the bandwidth of a graph.

Sachidananda et al., "Global Selection of Contrastive Batches via Optimization on Sample
Permutations", theorems 3.6, 3.7, 4.1, 4.2 and section 5. With mined negatives, s_ij is tau times
the logit of row j.
"""

from math import isfinite, log

import numpy as np

from batchplan.quality.measured import Estimate, Measured
from batchplan.typing import Float64Array


def bound_36(measured: Measured) -> Estimate:
    """Return the upper bound of the gap by theorem 3.6, in nats, mean of both directions.

    For batches of several sizes, log k is the mean over the entries of the plan.
    """
    sizes = np.diff(measured.plan.batch_offsets)
    lows = [np.minimum(way.least, way.positive) for way in measured.inside]
    return _bound(measured, np.mean(lows, axis=0) + np.log(np.repeat(sizes, sizes)))


def bound_37(measured: Measured) -> Estimate:
    """Return the same by theorem 3.7."""
    return _bound(measured, np.mean([way.peak for way in measured.inside], axis=0))


def qap_objective(measured: Measured) -> float:
    """Return the sum of s_ij + s_ji over the ordered pairs of batches, i = j too (theorem 4.2)."""
    return measured.temperature * float(sum(way.total.sum() for way in measured.inside))


def bottleneck(measured: Measured) -> float | None:
    """Return the smallest min(s_ij, s_ji) of two rows of a batch (theorem 4.1), if any."""
    least = min(float(way.least.min()) for way in measured.inside)
    return measured.temperature * least if isfinite(least) else None


def edge_recall(measured: Measured) -> Estimate | None:
    """Return the share of the edges whose rows share a batch; None without edges."""
    if measured.edges is None:
        return None
    sample = measured.sample
    return Estimate(*sample.ratio(*measured.edges.counts(measured.members, sample)))


def bandwidth(measured: Measured) -> int | None:
    """Return the largest distance of the two rows of an edge in the order of the plan.

    The first entry of each row counts. None without edges, or if a sample was measured.
    """
    if measured.edges is None or measured.sample.rows is not None:
        return None
    entries = np.arange(len(measured.plan.rows))
    position = np.full(measured.sample.num_rows, -1)
    position[measured.plan.rows[::-1]] = entries[::-1]
    ends = position[[measured.edges.places, measured.edges.columns]]
    distances = np.abs(np.diff(ends[:, (ends >= 0).all(axis=0)], axis=0))
    return int(distances.max()) if distances.size else None


def probability_of_all(measured: Measured) -> Estimate:
    """Return the mean softmax probability of the positive among all rows (appendix D)."""
    found = np.mean([np.exp(way.positive - way.log_sum) for way in measured.outside], axis=0)
    return Estimate(measured.sample.mean(found), measured.sample.standard_error(found))


def probability_at_random(measured: Measured) -> float:
    """Return the mean softmax probability of the positive in random batches."""
    return float(measured.random.probability.mean())


def _bound(measured: Measured, inside: Float64Array) -> Estimate:
    """Return the bound that follows from a lower bound of log-sum-exps, float64 (entries,)."""
    sample = measured.sample
    above = np.mean([way.peak - way.positive for way in measured.outside], axis=0)
    positive = np.mean([way.positive for way in measured.inside], axis=0)
    value = sample.mean(above) + log(sample.num_rows) - float((inside - positive).mean())
    return Estimate(value, sample.standard_error(above))
