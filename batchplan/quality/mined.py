"""Mined negatives, as the metrics use them: anchors meet them too.

With documents d_j0 = y_j, d_j1, ..., the logit of anchor i with row j is
log sum_c exp(x_i . d_jc / tau), and the two rows are as similar as the most similar of these
documents.
"""

from dataclasses import dataclass

import torch

from batchplan.quality.rows import MeasuredRows
from batchplan.typing import Int64Array


@dataclass(frozen=True, eq=False)
class MinedSides:
    """The mined negatives of N rows; none for pairs.

    Attributes:
        sides: k matrices; a missing negative has the values of the positive.
        missing: bool (k, N), on the device of the sides.
        documents: int64 (1 + k, N), there: equal for equal positives and negatives.
    """

    sides: tuple[MeasuredRows, ...]
    missing: torch.Tensor
    documents: torch.Tensor

    def __bool__(self) -> bool:
        return bool(self.sides)

    def answers(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Whether a mined negative of one row is the positive of the other: bool (..., R, C).

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows.
        """
        positive, *negatives = self.documents
        found = torch.zeros((*rows.shape, columns.shape[-1]), dtype=torch.bool, device=rows.device)
        for own in negatives:
            found |= positive[rows].unsqueeze(-1) == own[columns].unsqueeze(-2)
            found |= own[rows].unsqueeze(-1) == positive[columns].unsqueeze(-2)
        return found

    def of_row(self, x: MeasuredRows, rows: Int64Array) -> torch.Tensor:
        """Return the similarities of anchors to their own mined negatives, float64 (k, R).

        They are -inf for missing negatives. ``rows`` are the anchors, int64 (R,).
        """
        own = x.gather(rows)
        values = torch.stack([torch.linalg.vecdot(own, side.gather(rows)) for side in self.sides])
        return values.masked_fill_(self.missing[:, torch.from_numpy(rows)], -torch.inf)

    def with_own(
        self, positive: torch.Tensor, x: MeasuredRows, rows: Int64Array, temperature: float
    ) -> torch.Tensor:
        """Return the logits of anchors with their own rows, float64 (R,)."""
        if not self.sides:
            return positive
        own = self.of_row(x, rows) / temperature
        return torch.logaddexp(positive, own.logsumexp(dim=0))
