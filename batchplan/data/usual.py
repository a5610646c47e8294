"""The usual similarity of a row and its own pair."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchplan.options import USUAL_ROWS
from batchplan.typing import Int64Array

_ROUNDING = 1e-6  # rows as similar as most to their own pair keep their own ceiling


def usual_rows(num_rows: int) -> Int64Array:
    """The rows that count: all, or 16,384 of more, evenly spaced."""
    count = min(num_rows, USUAL_ROWS)
    rows: Int64Array = np.arange(count) * num_rows // count
    return rows


def usual_positive(own: NDArray[Any]) -> float:
    """Their lower median, less a millionth, of the similarities of these rows' own pairs."""
    median = float(np.quantile(own.astype(np.float32), 0.5, method="lower"))
    return median - _ROUNDING * abs(median)
