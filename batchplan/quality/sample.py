"""A stratified sample of the rows, and estimates of means over all rows."""

from dataclasses import dataclass

import numpy as np

from batchplan.typing import Float64Array, Int64Array


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to compare with all rows: two at random from each stratum, or all.

    Attributes:
        num_rows: N.
        rows: int64 (S,), the two rows of the first stratum, then two of the next; None for all N
            rows, whose means are exact.
        strata: int64 (S / 2,), the rows of each stratum, N in all; None for all rows.
    """

    num_rows: int
    rows: Int64Array | None = None
    strata: Int64Array | None = None

    @classmethod
    def draw(cls, order: Int64Array, count: int, generator: np.random.Generator) -> "Sample":
        """Cut ``order``, int64 (N,), into strata of equal size and draw two rows from each.

        The more alike the rows of a stratum are, the smaller are the errors. ``count`` rows are
        drawn in all, an even number of 2 to N.
        """
        bounds = np.arange(count // 2 + 1) * len(order) // (count // 2)
        strata = np.diff(bounds)
        first, second = generator.integers(0, strata), generator.integers(0, strata - 1)
        second += second >= first
        places = bounds[:-1, None] + np.stack((first, second), axis=1)
        return cls(len(order), order[places.ravel()], strata)

    def mean(self, values: Float64Array) -> float:
        """Estimate the mean over all N rows, from the values of the sample."""
        if self.strata is None:
            return float(values.mean())
        return self.total(values) / self.num_rows

    def total(self, values: Float64Array | Int64Array) -> float:
        """Estimate the sum over all N rows."""
        if self.strata is None:
            return float(values.sum())
        return float(values.reshape(-1, 2).mean(axis=1) @ self.strata)

    def ratio(self, part: Float64Array, whole: Float64Array) -> tuple[float, float]:
        """Estimate the sum of ``part`` over the sum of ``whole``, and its standard error.

        The error is the standard error of the linear part of the ratio (Cochran, section 6.13).
        """
        if not (total := self.total(whole)):
            return 0.0, 1.0  # nothing is known
        ratio = self.total(part) / total
        return ratio, self.standard_error(part - ratio * whole) * self.num_rows / total

    def standard_error(self, values: Float64Array) -> float:
        """Return the standard error of `mean`, from the two values of each stratum.

        W. G. Cochran, Sampling Techniques (3rd ed., 1977), equation 5.12: two of n_h rows drawn
        without replacement estimate the variance within the stratum.
        """
        if self.strata is None:
            return 0.0
        first, second = values.reshape(-1, 2).T
        variances = (first - second) ** 2 / 4 * (1 - 2 / self.strata)
        return float(np.sqrt((variances * (self.strata / self.num_rows) ** 2).sum()))
