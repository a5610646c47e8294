"""How many uniform draws it takes to see the negatives of an anchor.

O'Neill and Bollegala, "Semantically-Conditioned Negative Samples for Efficient Contrastive
Learning", section 3.3 and appendix E.1: the coupon collector's problem. To draw, uniformly, all k
negatives of an anchor out of M rows takes M (1/1 + 1/2 + ... + 1/k) draws on average (equation 16).
"""

from decimal import Decimal, localcontext
from functools import cache
from math import comb

import numpy as np

from batchplan.errors import InputError


def expected_draws(wanted: int, population: int) -> float:
    """Mean number of uniform draws, with replacement, until ``wanted`` specific rows were drawn.

    Equation 16, where ``population`` is the number of rows to draw from.

    Raises:
        InputError: not 1 <= wanted <= population.
    """
    _check(wanted, population, 1)
    return float(population * (1 / np.arange(1, wanted + 1)).sum())


@cache
def expected_batches(wanted: int, population: int, size: int, *, replace: bool = False) -> float:
    """Mean number of uniform batches of ``size`` rows until ``wanted`` specific rows were seen.

    Batches are drawn independently. By inclusion and exclusion over the rows that are still unseen
    it is the sum over j = 1 .. k of (-1)^(j+1) C(k, j) / (1 - q_j), where q_j is the probability
    that a batch holds none of j specific rows: (1 - j/M)^b if the rows of a batch are drawn with
    replacement, which for k = M is theorem 3 (equation 17), and C(M - j, b) / C(M, b) if they are
    distinct. The terms are far larger than their sum, so they are added as long decimals.

    Args:
        wanted: k.
        population: M, the rows to draw from.
        size: b, rows of a batch.
        replace: whether a batch may hold a row twice.

    Raises:
        InputError: not 1 <= wanted <= population, a size below 1, or one above M without
            replacement.
    """
    _check(wanted, population, size)
    if not replace and size > population:
        raise InputError(f"batches: got {size} distinct rows, expected at most {population}")
    with localcontext() as context:
        context.prec = 40 + wanted // 3 + len(str(population)) * 2
        total, missed = Decimal(0), Decimal(1)
        for j in range(1, wanted + 1):
            if replace:
                missed = (Decimal(population - j) / population) ** size
            else:  # C(M - j, b) / C(M, b), from that of j - 1
                missed *= Decimal(max(population - j + 1 - size, 0)) / (population - j + 1)
            total += (-1) ** (j + 1) * comb(wanted, j) / (1 - missed)
        return float(total)


def _check(wanted: int, population: int, size: int) -> None:
    if not 1 <= wanted <= population or size < 1:
        raise InputError(
            f"coupons: got {wanted} of {population} rows in batches of {size}, expected 1 to "
            f"{population} in batches of at least 1"
        )
