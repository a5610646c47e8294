"""The log-sum-exp of a stream of values."""

import torch

_LOWEST = torch.finfo(torch.float32).min


class RunningLogSumExp:
    """The log-sum-exp for each element of a tensor, fed tile by tile.

    It keeps the largest value so far and the sum of exp(value - largest), so that nothing
    overflows or vanishes at any temperature (Milakov and Gimelshein 2018, Online normalizer
    calculation for softmax).

    Attributes:
        peak: float64, the largest value so far.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device):
        # Finite, so that (-inf) - peak is -inf and not NaN for masked entries.
        self.peak = torch.full(shape, _LOWEST, dtype=torch.float64, device=device)
        self._total = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, values: torch.Tensor, dim: int, at: slice, *, consume: bool = False) -> None:
        """Add a tile of values, reduced along its dimension ``dim``.

        Args:
            values: float32 or float64, each below 3e38; -inf is ignored.
            dim: the dimension to reduce, which the tensors of this object do not have.
            at: the part of their last dimension that the tile belongs to.
            consume: whether ``values`` may be overwritten.
        """
        peak = torch.maximum(self.peak[..., at], values.amax(dim))
        shift = peak.to(values.dtype).unsqueeze(dim)  # exact: peaks are values seen
        scaled = torch.sub(values, shift, out=values if consume else None).exp_()
        kept = self._total[..., at] * torch.exp(self.peak[..., at] - peak)
        self._total[..., at] = kept + scaled.sum(dim)
        self.peak[..., at] = peak

    def result(self) -> torch.Tensor:
        """Return the log of the sums, float64; -inf for elements without a value."""
        return self.peak + self._total.log()
