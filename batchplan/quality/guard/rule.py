"""The rule of a guard against false negatives: which pairs of rows must not share a batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from batchplan.quality.mined import Mined
from batchplan.quality.rows import MeasuredRows, spans

_ELEMENTS = 1 << 21  # numbers of the rows gathered to decide doubtful pairs in float64
_EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class Guard:
    """Decides which pairs of rows break the guard.

    Two rows break it if one of their similarities reaches one of their ceilings, or if they share
    a code.

    Attributes:
        x, y: the rows whose similarities are compared with the ceilings.
        own: whether these are the rows of the data, and not of a reference.
        mined: mined negatives; the similarity of two rows is the largest of their documents.
        bound: the largest possible abs(x_i . y_j).
        ceilings: float64 (N,), lowered so that rounding cannot undo a tie; inf without a limit.
        codes: reasons and their int64 (N,) codes. A row without a code has a unique negative one.
    """

    x: MeasuredRows
    y: MeasuredRows
    own: bool
    mined: Mined
    bound: float
    ceilings: torch.Tensor
    codes: list[tuple[str, torch.Tensor]]

    @property
    def slack(self) -> float:
        """A bound on the error of a float32 similarity less a float32 ceiling.

        Twice the bound for a dot product summed in any order, and four roundings.
        """
        return (self.x.dim + 4) * _EPS * self.bound

    def excess(
        self, rows: torch.Tensor, columns: torch.Tensor, highest: torch.Tensor
    ) -> torch.Tensor:
        """Return how far pairs exceed the lower of their ceilings, float64; 0 or more breaks it.

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows of each pair.
            highest: max(s_ij, s_ji) of each, (..., R, C).
        """
        of_rows, of_columns = self.ceilings[rows], self.ceilings[columns]
        return highest - torch.minimum(of_rows.unsqueeze(-1), of_columns.unsqueeze(-2))

    def same(self, rows: torch.Tensor, columns: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each reason, and whether pairs share a code of it, bool (..., R, C)."""
        for reason, codes in self.codes:
            yield reason, codes[rows].unsqueeze(-1) == codes[columns].unsqueeze(-2)

    def broken(
        self, rows: torch.Tensor, columns: torch.Tensor, highest: torch.Tensor
    ) -> torch.Tensor:
        """Whether pairs of distinct rows break the guard, bool (R, C).

        Args:
            rows, columns: int64 (R,) and (C,).
            highest: float32 (R, C), max(s_ij, s_ji); `reach` decides pairs within the `slack`.
        """
        excess = self.excess(rows, columns, highest)
        broken = excess >= 0
        answers = [self.mined.answers(rows, columns)] if self.mined else []
        for same in (*answers, *(one for _, one in self.same(rows, columns))):
            broken |= same
            excess.masked_fill_(same, torch.inf)  # beyond doubt
        different = rows[:, None] != columns
        broken &= different
        r, c = torch.nonzero((excess.abs() <= self.slack) & different, as_tuple=True)
        broken[r, c] = self.reach(rows[r], columns[c])
        return broken

    def reach(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Whether the similarities of pairs reach a ceiling, in float64: bool (P,).

        Args:
            rows, columns: int64 (P,), the two rows of each pair.
        """
        x, y = self.x, self.y
        reached = torch.empty(len(rows), dtype=torch.bool, device=x.device)
        for first, last in spans(len(rows), max(1, _ELEMENTS // x.dim)):
            i, j = rows[first:last], columns[first:last]
            own, others = i.cpu().numpy(), j.cpu().numpy()
            highest = torch.linalg.vecdot(x.gather(own), y.gather(others))
            highest = highest.maximum(torch.linalg.vecdot(y.gather(own), x.gather(others)))
            for side in self.mined.sides:
                for one, other in ((own, others), (others, own)):
                    products = torch.linalg.vecdot(x.gather(one), side.gather(other))
                    highest = highest.maximum(products)
            limits = torch.minimum(self.ceilings[i], self.ceilings[j])
            reached[first:last] = highest >= limits
        return reached
