"""How many entries of X Y^T a similarity graph keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

from batchplan.errors import InputError
from batchplan.runtime import IN_PARTS


@dataclass(frozen=True)
class EdgeBudget:
    """An exact number of edges, from a quantile or a mean number of edges per row.

    Attributes:
        quantile: share of the N (N - 1) off-diagonal entries of X Y^T to drop, in (0, 1) (GCBS
            section 5.1). Ignored if ``neighbors`` is set.
        neighbors: mean edges per row; the quantile is then 1 - neighbors / N (GCBS appendix J).

    Raises:
        InputError: a quantile outside (0, 1), or ``neighbors`` is not an integer of at least 1.
    """

    quantile: float = 0.999
    neighbors: int | None = None

    def __post_init__(self) -> None:
        count: object = self.neighbors
        if count is not None and not (isinstance(count, Integral) and int(count) >= 1):
            raise InputError(
                f"neighbors: got {self.neighbors}, expected an integer of at least 1 edge per row"
            )
        if self.neighbors is None and not 0 < self.quantile < 1:
            raise InputError(
                f"quantile: got {self.quantile}, expected a share strictly between 0 and 1 "
                "(0.999 keeps one similarity in a thousand)"
            )

    def edges(self, num_rows: int) -> int:
        """Edges for ``num_rows`` rows: at least 1, at most N (N - 1).

        Raises:
            InputError: ``neighbors`` is not below the number of rows.
        """
        if self.neighbors is None:
            return max(1, round((1 - self.quantile) * num_rows * (num_rows - 1)))
        if self.neighbors >= num_rows:
            raise InputError(
                f"neighbors: got {self.neighbors}, expected fewer than the {num_rows} rows "
                f"(at most {num_rows - 1})"
            )
        return self.neighbors * num_rows


def neighbors_that_fit(fixed: int, neighbor_bytes: int) -> Callable[[int], str]:
    """The hint for `Runtime.require_memory` that says how many neighbours per row fit.

    Args:
        fixed: bytes needed for any number of neighbours.
        neighbor_bytes: bytes that one neighbour of every row takes.
    """

    def hint(left: int) -> str:
        fits = max(0, left - fixed) // neighbor_bytes
        if fits:
            return f"use at most --neighbors {fits}"
        return f"{IN_PARTS}: not even one neighbour per row fits"

    return hint
