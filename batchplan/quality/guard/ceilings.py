"""Computes ceilings: the similarity that the negatives of each row must stay below."""

import numpy as np

from batchplan.options import USUAL_ROWS
from batchplan.quality.options import EvaluationOptions
from batchplan.typing import Float64Array

_ROUNDING = 1e-6  # rows as similar as most to their own pair keep their own ceiling


def ceilings(own: Float64Array, options: EvaluationOptions) -> Float64Array:
    """Return the ceilings of rows, float64 (N,), from the similarities (N,) of their own pairs.

    A margin is taken from a row's own similarity, or from the median of all if that is higher.
    """
    if options.max_score is not None:
        return np.full_like(own, options.max_score)
    count = min(len(own), USUAL_ROWS)
    few = np.sort(own[np.arange(count) * len(own) // count])
    median = few[(count - 1) // 2]
    own = np.maximum(own, median - _ROUNDING * abs(median))
    if options.absolute_margin is not None:
        return own - options.absolute_margin
    margin = options.relative_margin or 0.0
    return np.where(own < 0, own * (1 + margin), own * (1 - margin))
