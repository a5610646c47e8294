"""The ceilings of rows, and the usual positive; `batchplan.guard.guard` explains both."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.options import USUAL_ROWS
from batchplan.typing import Float32Array, Int64Array

_ROUNDING = 1e-6  # rows with nearly the median similarity keep their own ceiling


def usual_rows(num_rows: int) -> Int64Array:
    """Return the rows whose median is taken: all, or 16,384 evenly spaced rows if there are
    more."""
    count = min(num_rows, USUAL_ROWS)
    rows: Int64Array = np.arange(count) * num_rows // count
    return rows


def usual_positive(own: NDArray[Any]) -> float:
    """Return the lower median of the similarities of own pairs, less a millionth of it."""
    median = float(np.quantile(own.astype(np.float32), 0.5, method="lower"))
    return median - _ROUNDING * abs(median)


def ceilings_of(
    q: NDArray[Any],
    relative_margin: float | None = None,
    absolute_margin: float | None = None,
    max_score: float | None = None,
) -> Float32Array:
    """float32 (n,): the ceilings c_i of rows with these q_i, for at most one of R, M and C."""
    if max_score is not None:
        return np.full(len(q), max_score, np.float32)
    margin = relative_margin or 0.0
    ceilings = np.where(q >= 0, 1 - margin, 1 + margin) * q - (absolute_margin or 0.0)
    return np.asarray(ceilings, np.float32)
