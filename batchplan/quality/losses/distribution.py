"""Percentiles and a histogram of similarities, in bounded memory."""

from typing import Any

import numpy as np
import torch

PERCENTS = (1, 5, 25, 50, 75, 95, 99)  # of `Evaluation.similarity_percentiles`
HISTOGRAM_BINS = 40  # of 0.05 under cosine similarity
_FINE = 1 << 13  # bins for the percentiles in each of these
_HALF = HISTOGRAM_BINS * _FINE // 2


class Distribution:
    """The similarities s_ij with i != j of all batches, within [-bound, bound].

    They are counted in 327,680 bins of equal width. Percentiles are off by at most half that
    width, 3.1e-6 of the bound. The shares of the 40 bins of the histogram are exact. A number on an
    edge belongs to the bin above it; the last bin includes both its edges. Numbers that rounding
    pushes beyond the bound count in the outermost bins.
    """

    def __init__(self, bound: float, device: torch.device):
        self._bound = bound or 1.0  # all numbers are 0 if the bound is
        self._counts = torch.zeros(2 * _HALF, dtype=torch.int64, device=device)

    def add(self, tile: torch.Tensor, on_diagonal: bool) -> None:
        """Add similarities, float64 (batches, R, C); a tile on the diagonal is square."""
        numbers = (_off_diagonal(tile) if on_diagonal else tile).flatten()
        # Scaling precedes the shift, so that 0 lies exactly on its edge for any bound.
        place = (numbers * (_HALF / self._bound)).add_(_HALF).long().clamp_(0, 2 * _HALF - 1)
        self._counts += torch.bincount(place, minlength=2 * _HALF)

    def shares(self) -> list[float]:
        """Return the share of the numbers in each bin; empty if there are no numbers."""
        counts = self._counts.view(HISTOGRAM_BINS, _FINE).sum(1).double()
        return (counts / counts.sum()).tolist() if counts.any() else []

    def percentiles(self) -> dict[str, float]:
        """Return the percentiles by percent; empty if there are no numbers."""
        reached = self._counts.cumsum(0).cpu().numpy()
        if not reached[-1]:
            return {}
        ranks = np.array(PERCENTS) / 100 * (reached[-1] - 1)
        below, above = (
            np.searchsorted(reached, side, side="right") + 0.5
            for side in (np.floor(ranks), np.ceil(ranks))
        )
        values = ((below + (above - below) * (ranks % 1)) / _HALF - 1) * self._bound
        return dict(zip(map(str, PERCENTS), values.tolist(), strict=True))

    def figures(self, random: "Distribution") -> dict[str, Any]:
        """Return the fields of `Evaluation` about similarities, next to those of a random plan."""
        half = HISTOGRAM_BINS // 2
        edges = [self._bound * (step / half) for step in range(-half, half + 1)]
        histogram = {"edges": edges, "plan": self.shares(), "random": random.shares()}
        return {
            "similarity_percentiles": self.percentiles(),
            "similarity_histogram": histogram if histogram["plan"] else {},
        }


def _off_diagonal(tile: torch.Tensor) -> torch.Tensor:
    """A view of (batches, n, n) without the diagonals, every (n + 1)-th element."""
    count, n, _ = tile.shape
    return tile.reshape(count, n * n)[:, 1:].view(count, n - 1, n + 1)[:, :, :-1]
