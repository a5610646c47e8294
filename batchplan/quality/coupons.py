"""Measures a table of negatives: the rows that it covers, and how long draws take to find them.

O'Neill and Bollegala, "Semantically-Conditioned Negative Samples for Efficient Contrastive
Learning", section 3.3 and appendix E: the coupon collector's problem.
"""

from dataclasses import asdict, dataclass
from decimal import Decimal, localcontext
from math import comb
from typing import Any

import numpy as np

from batchplan.plans.negatives import Negatives
from batchplan.quality.coverage import Coverage, coverage
from batchplan.typing import Float32Array, Float64Array

_ANCHORS = 1 << 10  # evenly spaced ones give the mean
_GRID = np.arange(-40, 5, 0.075)  # log of t times the least probability


@dataclass(frozen=True, kw_only=True)
class NegativesEvaluation:
    """The coverage of a table of negatives: n anchors with M negatives each.

    Attributes:
        num_rows, num_anchors, negatives_per_anchor: N, n and M.
        coverage: of the N rows by the negatives.
        uniform_draws: the expected number of uniform draws of other rows until all M negatives of
            an anchor were drawn (equation 16).
        uniform_batches: of random batches, as many as the table's batch size has (equation 17).
        drawn: of draws by the probabilities of the table (equations 33 to 35), mean of up to 1,024
            anchors. None if the table has no probabilities, or one of them is 0.
    """

    num_rows: int
    num_anchors: int
    negatives_per_anchor: int
    coverage: Coverage
    uniform_draws: float
    uniform_batches: float
    drawn: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def evaluate_negatives(table: Negatives) -> NegativesEvaluation:
    """Measure a table of negatives; the batch size is in its metadata."""
    n, m, size = table.metadata.num_rows, table.per_anchor, table.metadata.batch_size
    p, drawn = table.probabilities, None
    if p is not None and p.all():
        drawn = float(expected_draws(p[:: -(-len(p) // _ANCHORS)]).mean())
    return NegativesEvaluation(
        num_rows=n,
        num_anchors=len(table),
        negatives_per_anchor=m,
        coverage=coverage(table.negatives.ravel(), n),
        uniform_draws=expected_batches(m, n - 1, 1),
        uniform_batches=expected_batches(m, n - 1, max(1, size - 1)),
        drawn=drawn,
    )


def expected_batches(wanted: int, population: int, size: int) -> float:
    """Return the mean number of uniform batches until ``wanted`` specific rows were seen.

    A batch has b draws, with replacement. The mean is the sum over j = 1 .. k of
    (-1)^(j+1) C(k, j) / (1 - (1 - j/M)^b): for b = 1 equation 16, M (1 + 1/2 + ... + 1/k), and for
    k = M equation 17. The terms are far larger than their sum, so they are long decimals.

    Args:
        wanted: k, at most ``population``.
        population: M, the rows to draw from.
        size: b.
    """
    with localcontext() as context:
        context.prec = 40 + wanted + len(str(population)) * 2
        missed = (Decimal(population - j) / population for j in range(1, wanted + 1))
        terms = (comb(wanted, j) / (1 - share**size) for j, share in enumerate(missed, 1))
        return float(sum((-1) ** j * term for j, term in enumerate(terms)))


def expected_draws(probabilities: Float32Array) -> Float64Array:
    """Return the mean number of draws until all of some rows were drawn, float64 (n,).

    Equations 33 and 35: the integral over t > 0 of 1 - prod_i (1 - exp(-p_i t)), by the trapezoid
    rule in log t, which is exact to many digits here.

    Args:
        probabilities: (n, M), above 0, of the rows in a single draw.
    """
    p = probabilities.astype(np.float64)
    t = np.exp(_GRID) / p.min(axis=1, keepdims=True)
    seen = np.prod([-np.expm1(-one[:, None] * t) for one in p.T], axis=0)
    found: Float64Array = ((1 - seen) * t).sum(axis=1) * (_GRID[1] - _GRID[0])
    return found
