"""The rule of a guard against false negatives: which pairs of rows must not share a batch."""

from dataclasses import dataclass
from functools import cached_property, reduce

import torch

from batchplan.quality.known import KnownPairs
from batchplan.quality.mined import MinedSides
from batchplan.quality.rows import MeasuredRows

_ROUNDING = 2e-6  # of the largest |s|: errors of float32 similarities are usually smaller


@dataclass(frozen=True, eq=False)
class GuardRule:
    """Decides which pairs of rows break the guard.

    Two rows break it if one of their similarities reaches one of their ceilings, if they share a
    code, or if one has a known answer of the other.

    Attributes:
        x, y: the rows whose similarities are compared with the ceilings.
        own: whether these are the rows of the data, and not of a reference.
        mined: mined negatives; the similarity of two rows is the largest of their documents.
        bound: the largest possible abs(x_i . y_j).
        ceilings: float64 (N,), lowered so that rounding cannot undo a tie; inf without a limit.
        known: the known answers; None if equal rows, which have codes, are all.
        codes: reasons and their int64 (N,) codes. A row without a code has a unique negative one.
    """

    x: MeasuredRows
    y: MeasuredRows
    own: bool
    mined: MinedSides
    bound: float
    ceilings: torch.Tensor
    codes: list[tuple[str, torch.Tensor]]
    known: KnownPairs | None = None

    @cached_property
    def ceilings_32(self) -> torch.Tensor:
        """The ceilings for float32 similarities, float32 (N,), lowered for their rounding."""
        return (self.ceilings - _ROUNDING * self.bound).float()

    def reasons(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        highest: torch.Tensor,
        largest: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """Return which pairs of distinct rows break the guard, bool (..., R, C), by reason, and
        ``any``.

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows of each pair.
            highest: (..., R, C), float32 or float64, max(s_ij, s_ji) of each.
            largest: the same of any of their documents.
        """
        ceilings = self.ceilings_32 if highest.dtype == torch.float32 else self.ceilings
        limits = torch.minimum(ceilings[rows].unsqueeze(-1), ceilings[columns].unsqueeze(-2))
        broken = {"similarity": highest >= limits}
        if self.mined:
            reached = (largest >= limits) | self.mined.answers(rows, columns)
            broken["negative"] = reached & ~broken["similarity"]
        for reason, codes in self.codes:
            same = codes[rows].unsqueeze(-1) == codes[columns].unsqueeze(-2)
            broken[reason] = broken[reason] | same if reason in broken else same
        if self.known is not None:
            met = self.known.met(rows.cpu().numpy(), columns.cpu().numpy())
            broken["known"] = torch.from_numpy(met).to(highest.device)
            if "duplicate" in broken:
                broken["known"] &= ~broken["duplicate"]
        broken["any"] = reduce(torch.logical_or, broken.values())
        different = rows.unsqueeze(-1) != columns.unsqueeze(-2)
        return {reason: mask & different for reason, mask in broken.items()}
