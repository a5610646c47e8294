"""Percentiles and a histogram of many numbers, in bounded memory."""

import numpy as np
import torch

EXACT_UP_TO = 1 << 22  # numbers kept as they are: 32 MB
PERCENTILE_BINS = 1 << 20
PERCENTS = (1, 5, 25, 50, 75, 95, 99)  # of `Evaluation.similarity_percentiles`
HISTOGRAM_BINS = 40  # of 0.05 under cosine similarity
_HALF = HISTOGRAM_BINS // 2


class Percentiles:
    """Percentiles of ``count`` numbers within [-bound, bound].

    Up to `EXACT_UP_TO` numbers are kept, and the result is that of `numpy.percentile`. More are
    counted in `PERCENTILE_BINS` bins of equal width, and the result is off by at most half that
    width, which is bound / PERCENTILE_BINS (1e-6 for cosine similarities).
    """

    def __init__(self, count: int, bound: float, device: torch.device):
        self._bound = bound or 1.0  # all numbers are 0 if the bound is
        self._added = 0
        exact = count <= EXACT_UP_TO
        self._numbers = torch.empty(count if exact else 0, dtype=torch.float64)
        self._counts = torch.zeros(
            0 if exact else PERCENTILE_BINS, dtype=torch.int64, device=device
        )

    def add(self, numbers: torch.Tensor) -> None:
        """Add a float64 tensor of any shape."""
        if bins := self._counts.numel():
            place = (numbers.flatten() + self._bound).mul_(bins / (2 * self._bound)).long()
            self._counts += torch.bincount(place.clamp_(0, bins - 1), minlength=bins)
        else:
            self._numbers[self._added : self._added + numbers.numel()] = numbers.flatten().cpu()
        self._added += numbers.numel()

    def at(self, percents: tuple[float, ...]) -> list[float]:
        """Return the percentiles; empty if there are no numbers."""
        if not self._added:
            return []
        if not (bins := self._counts.numel()):
            return [float(p) for p in np.percentile(self._numbers.numpy(), percents)]
        reached = self._counts.cumsum(0).cpu().numpy()
        ranks = np.asarray(percents) / 100 * (self._added - 1)
        below, above = (
            (np.searchsorted(reached, side, side="right") + 0.5) * (2 * self._bound / bins)
            for side in (np.floor(ranks), np.ceil(ranks))
        )
        mixed = below + (above - below) * (ranks % 1) - self._bound
        return [float(p) for p in mixed]


class Histogram:
    """Counts of numbers within [-bound, bound] in 40 bins of equal width.

    A number on an edge belongs to the bin above it; the last bin includes both its edges. Numbers
    that rounding pushes beyond the bound count in the outermost bins.
    """

    def __init__(self, bound: float, device: torch.device):
        self._bound = bound or 1.0  # all numbers are 0 if the bound is
        #: the 41 edges of the bins
        self.edges = [self._bound * (step / _HALF) for step in range(-_HALF, _HALF + 1)]
        self._counts = torch.zeros(HISTOGRAM_BINS, dtype=torch.int64, device=device)

    def add(self, numbers: torch.Tensor) -> None:
        """Add a float64 tensor of any shape."""
        # Scaling precedes the shift, so that 0 lies exactly on its edge for any bound.
        place = (numbers.flatten() * (_HALF / self._bound)).add_(_HALF).long()
        place.clamp_(0, HISTOGRAM_BINS - 1)
        self._counts += torch.bincount(place, minlength=HISTOGRAM_BINS)

    def shares(self) -> list[float]:
        """Return the share of the numbers in each bin; empty if there are no numbers."""
        counts: list[int] = self._counts.tolist()
        total = sum(counts)
        return [count / total for count in counts] if total else []
