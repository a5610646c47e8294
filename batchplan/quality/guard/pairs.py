"""Which pairs of rows a guard against false negatives allows."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data.duplicates import duplicate_codes
from batchplan.quality.guard.ceilings import ceilings as ceilings_of
from batchplan.quality.mined import Mined
from batchplan.quality.references import References
from batchplan.quality.rows import MeasuredRows, spans

Int64Array = NDArray[np.int64]

_ROWS_AT_ONCE = 4096
_TIE = 1e-10  # of the largest |s|: more than the rounding error of a float64 similarity
_ELEMENTS = 1 << 21  # numbers of the rows gathered to decide doubtful pairs in float64


@dataclass(frozen=True, eq=False)
class AllowedPairs:
    """The pairs of rows that do not break a guard.

    Two rows break it if one of their similarities reaches one of their ceilings, or if they share
    a code.

    Attributes:
        x, y: the data.
        mined: mined negatives; the similarity of two rows is the largest of their documents.
        temperature: tau.
        bound: the largest possible abs(x_i . y_j).
        judge: x, y and bound of what the guard compares with the ceilings, the same unless there is
            a reference.
        ceilings: float64 (N,), lowered so that rounding cannot undo a tie; inf without a limit.
        codes: reasons and their int64 (N,) codes. A row without a code has a unique negative one.
    """

    x: MeasuredRows
    y: MeasuredRows
    mined: Mined
    temperature: float
    bound: float
    judge: tuple[MeasuredRows, MeasuredRows, float]
    ceilings: torch.Tensor
    codes: list[tuple[str, torch.Tensor]]

    @property
    def own_judge(self) -> bool:
        """Whether the guard looks at the similarities that the losses have."""
        return self.judge[:2] == (self.x, self.y)

    def excess(
        self, rows: torch.Tensor, columns: torch.Tensor, highest: torch.Tensor
    ) -> torch.Tensor:
        """How far pairs exceed the lower of their ceilings, float64; from 0 on they break it.

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows of each pair.
            highest: max(s_ij, s_ji) of each, (..., R, C).
        """
        of_rows, of_columns = self.ceilings[rows], self.ceilings[columns]
        return highest - torch.minimum(of_rows.unsqueeze(-1), of_columns.unsqueeze(-2))

    def same(self, rows: torch.Tensor, columns: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Each reason, and whether pairs share a code of it, bool (..., R, C)."""
        for reason, codes in self.codes:
            yield reason, codes[rows].unsqueeze(-1) == codes[columns].unsqueeze(-2)

    def reach(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Whether the similarities of pairs reach a ceiling, in float64: bool (P,).

        Args:
            rows, columns: int64 (P,), the two rows of each pair.
        """
        x, y, _ = self.judge
        reached = torch.empty(len(rows), dtype=torch.bool, device=self.x.device)
        for first, last in spans(len(rows), max(1, _ELEMENTS // self.x.dim)):
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


def allowed_pairs(references: References, groups: Int64Array | None) -> AllowedPairs:
    """The pairs that the options and the ``groups``, int64 (N,), -1 for none, allow."""
    x, y, options = references.x, references.y, references.options
    embeddings = references.embeddings
    *judge, bound = references.judge
    matrices = [embeddings.x, embeddings.y][: 1 + embeddings.paired]
    total = x.num_rows * (len(matrices) + options.limited)
    with references.runtime.stage("guard", total=total) as advance:
        codes = [] if groups is None else [("group", groups)]
        codes += [("duplicate", duplicate_codes(matrix, advance)) for matrix in matrices]
        ceilings = torch.full((x.num_rows,), inf, dtype=torch.float64, device=x.device)
        if options.limited:
            for start, stop in spans(x.num_rows, _ROWS_AT_ONCE):
                own = [side.block(start, stop).double() for side in judge]
                ceilings[start:stop] = torch.linalg.vecdot(*own)[: stop - start]
                advance(stop - start)
            limits = ceilings_of(ceilings.cpu().numpy(), options) - _TIE * bound
            ceilings = torch.from_numpy(limits).to(x.device)
    no_code = -1 - np.arange(x.num_rows)  # unique, so that a test for equality is enough
    distinct = [
        (reason, torch.from_numpy(np.where(values < 0, no_code, values)).to(x.device))
        for reason, values in codes
        if values.max() >= 0
    ]
    return AllowedPairs(
        x,
        y,
        references.mined,
        options.temperature,
        references.bound,
        references.judge,
        ceilings,
        distinct,
    )
