"""Which pairs of rows a guard against false negatives keeps apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data.duplicates import duplicate_codes
from batchplan.quality.rows import Side, spans

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.runtime import Runtime

Int64Array = NDArray[np.int64]

_ROWS_AT_ONCE = 4096
_TIE = 1e-10  # of the largest |s|: more than rounding takes from a float64 similarity


@dataclass(frozen=True, eq=False)
class GuardRules:
    """Two rows break the guard if a similarity of theirs reaches a ceiling, or a code is shared.

    Attributes:
        ceilings: float64 (N,), a share of each row's own positive, or that less a margin, and less
            what rounding may take from a tie; None where no similarity is too high.
        codes: by reason, int64 (N,) each; rows of one code break the guard. Each row without a code
            has a negative one of its own.
    """

    ceilings: torch.Tensor | None
    codes: dict[str, list[torch.Tensor]]

    def by_similarity(
        self, rows: torch.Tensor, columns: torch.Tensor, highest: torch.Tensor
    ) -> torch.Tensor:
        """How far pairs are above the lower of their ceilings, float64; they break it from 0 on.

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows of each pair.
            highest: max(s_ij, s_ji) of each, (..., R, C).
        """
        if self.ceilings is None:
            return torch.full_like(highest, -torch.inf)
        one, other = self.ceilings[rows].unsqueeze(-1), self.ceilings[columns].unsqueeze(-2)
        return highest - torch.minimum(one, other)

    def by_code(
        self, reason: str, rows: torch.Tensor, columns: torch.Tensor
    ) -> torch.Tensor | None:
        """Whether pairs share a code, bool (..., R, C); None if no two rows of the data do."""
        found = None
        for codes in self.codes[reason]:
            same = codes[rows].unsqueeze(-1) == codes[columns].unsqueeze(-2)
            found = same if found is None else found.logical_or_(same)
        return found


def guard_rules(
    embeddings: Embeddings,
    x: Side,
    y: Side,
    bound: float,
    runtime: Runtime,
    *,
    max_similarity: float | None,
    margin: float | None,
    groups: Int64Array | None,
) -> GuardRules:
    """The rules for some data: one pass over its rows.

    Args:
        embeddings: N pairs.
        x, y: the same rows as they are measured.
        bound: of |x_i . y_j|.
        runtime: progress.
        max_similarity: ceilings are this share of x_i . y_i.
        margin: ceilings are x_i . y_i less this.
        groups: int64 (N,), -1 for none.
    """
    sides = [embeddings.x, embeddings.y][: 1 + embeddings.paired]
    limited = max_similarity is not None or margin is not None
    with runtime.stage("guard", total=embeddings.num_rows * (len(sides) + limited)) as advance:
        given = {
            "group": [] if groups is None else [groups],
            "duplicate": [duplicate_codes(side, advance) for side in sides],
        }
        ceilings = None
        if limited:
            ceilings = torch.empty(x.num_rows, dtype=torch.float64, device=x.device)
            for start, stop in spans(x.num_rows, _ROWS_AT_ONCE):
                own = x.block(start, stop).double(), y.block(start, stop).double()
                ceilings[start:stop] = torch.linalg.vecdot(*own)[: stop - start]
                advance(stop - start)
            ceilings = ceilings * (max_similarity or 1.0) - (margin or 0.0) - _TIE * bound
    codes = {
        reason: [_told_apart(one, x.device) for one in some if one.max() >= 0]
        for reason, some in given.items()
    }
    return GuardRules(ceilings, codes)


def _told_apart(codes: Int64Array, device: torch.device) -> torch.Tensor:
    """Codes where each -1 is another negative number, so that equality is all there is to ask."""
    own = np.where(codes < 0, -1 - np.arange(len(codes)), codes)
    return torch.from_numpy(own).to(device)
