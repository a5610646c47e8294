"""Histogram of the similarities of negatives in constant memory."""

from __future__ import annotations

import torch

BINS = 40  # of 0.05 under cosine similarity
_HALF = BINS // 2


class Histogram:
    """Counts of numbers within [-bound, bound] in 40 bins of equal width.

    A number on an edge belongs to the bin above it, and the last bin has both its edges. What
    rounding pushes beyond the bound counts in the outermost bins.
    """

    def __init__(self, bound: float, device: torch.device):
        self._bound = bound or 1.0  # all numbers are 0 if the bound is
        #: the 41 edges of the bins
        self.edges = [self._bound * (step / _HALF) for step in range(-_HALF, _HALF + 1)]
        self._counts = torch.zeros(BINS, dtype=torch.int64, device=device)

    def add(self, numbers: torch.Tensor) -> None:
        """Take in a float64 tensor of any shape."""
        # Scaled before it is shifted, so that 0 lies on its edge exactly whatever the bound is.
        place = (numbers.flatten() * (_HALF / self._bound)).add_(_HALF).long()
        self._counts += torch.bincount(place.clamp_(0, BINS - 1), minlength=BINS)

    def shares(self) -> list[float]:
        """The share of the numbers in each bin; empty if there are no numbers."""
        counts: list[int] = self._counts.tolist()
        total = sum(counts)
        return [count / total for count in counts] if total else []
