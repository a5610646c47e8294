"""Percentiles of many numbers in bounded memory."""

from __future__ import annotations

import numpy as np
import torch

EXACT_UP_TO = 1 << 22  # numbers kept as they are: 32 MB
BINS = 1 << 20


class Percentiles:
    """Percentiles of ``count`` numbers within [-bound, bound], known in advance.

    Up to `EXACT_UP_TO` numbers are kept, and the result is that of `numpy.percentile`. More are
    counted in `BINS` bins of equal width, and the result is off by at most half that width, which
    is bound / BINS (1e-6 for cosine similarities).
    """

    def __init__(self, count: int, bound: float, device: torch.device):
        self._bound = bound or 1.0  # all numbers are 0 if the bound is
        self._added = 0
        self._numbers = torch.empty(0, dtype=torch.float64)
        self._counts = torch.zeros(0, dtype=torch.int64)
        if count <= EXACT_UP_TO:
            self._numbers = torch.empty(count, dtype=torch.float64)
        else:
            self._counts = torch.zeros(BINS, dtype=torch.int64, device=device)

    def add(self, numbers: torch.Tensor) -> None:
        """Take in a float64 tensor of any shape."""
        if self._counts.numel():
            place = (numbers.flatten() + self._bound).mul_(BINS / (2 * self._bound)).long()
            self._counts += torch.bincount(place.clamp_(0, BINS - 1), minlength=BINS)
        else:
            self._numbers[self._added : self._added + numbers.numel()] = numbers.flatten().cpu()
        self._added += numbers.numel()

    def at(self, percents: tuple[float, ...]) -> list[float] | None:
        """The percentiles, None if there are no numbers."""
        if not self._added:
            return None
        if not self._counts.numel():
            return [float(p) for p in np.percentile(self._numbers.numpy(), percents)]
        reached = self._counts.cumsum(0).cpu().numpy()
        ranks = np.asarray(percents) / 100 * (self._added - 1)
        below, above = (
            (np.searchsorted(reached, side, side="right") + 0.5) * (2 * self._bound / BINS)
            for side in (np.floor(ranks), np.ceil(ranks))
        )
        mixed = below + (above - below) * (ranks % 1) - self._bound
        return [float(p) for p in mixed]
