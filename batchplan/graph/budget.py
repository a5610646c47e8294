"""How many entries of X Y^T a similarity graph keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

from batchplan.errors import InputError


@dataclass(frozen=True)
class EdgeBudget:
    """An exact number of edges, given as a quantile or as a mean number of neighbours a row.

    Attributes:
        quantile: share of the N (N - 1) off-diagonal entries of X Y^T that is dropped, in (0, 1)
            (GCBS section 5.1). Ignored when ``neighbors`` is given.
        neighbors: mean edges a row; the quantile is then 1 - neighbors / N (GCBS appendix J).

    Raises:
        InputError: a quantile outside (0, 1), or neighbors that is no integer of 1 or more.
    """

    quantile: float = 0.999
    neighbors: int | None = None

    def __post_init__(self) -> None:
        count: object = self.neighbors
        if count is not None and not (isinstance(count, Integral) and int(count) >= 1):
            raise InputError(
                f"neighbors: got {self.neighbors}, expected an integer, at least 1 edge a row"
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


def neighbors_that_fit(fixed: int, a_neighbor: int) -> Callable[[int], str]:
    """A hint for `Runtime.require_memory`: how many neighbours per row there is room for.

    Args:
        fixed: bytes needed however few the neighbours.
        a_neighbor: bytes that one neighbour of every row takes.
    """

    def hint(left: int) -> str:
        fits = max(0, left - fixed) // a_neighbor
        if fits:
            return f"use at most --neighbors {fits}"
        return "plan the data in parts: not even one neighbour per row fits"

    return hint
