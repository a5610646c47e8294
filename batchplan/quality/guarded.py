"""Which pairs of rows a guard against false negatives allows, and the losses over those."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.data.duplicates import duplicate_codes
from batchplan.quality.batches import TILE, equal_batches, gather
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.references import References
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.quality.running import RunningLogSumExp
from batchplan.runtime import full_float32

Int64Array = NDArray[np.int64]
Span = tuple[int, int]

_ROWS_AT_ONCE = 4096
_TIE = 1e-10  # of the largest |s|: more than the rounding error of a float64 similarity
_QUERIES = 1024
_COLUMNS = {"cpu": 1024, "cuda": 8192}
_ELEMENTS = 1 << 21  # numbers of the rows gathered to decide doubtful pairs in float64


@dataclass(frozen=True, eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows of these pairs.
        by: their number by reason; ``any`` counts a pair of several reasons once. Each pair is met
            from both its rows and counts twice.
    """

    affected: torch.Tensor
    by: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("any", "similarity", "group", "duplicate"), 0)
    )


@dataclass(frozen=True, eq=False)
class AllowedPairs:
    """The pairs of rows that do not break a guard.

    Two rows break it if one of their similarities reaches one of their ceilings, or if they share
    a code.

    Attributes:
        x, y: the data.
        judge: both sides of what the guard compares with ceilings, the same objects as x and y
            unless there is a reference.
        temperature: tau.
        ceilings: float64 (N,), lowered so that rounding cannot undo a tie; None without a limit.
        codes: reasons and their int64 (N,) codes. A row without a code has a unique negative one.
    """

    x: MeasuredRows
    y: MeasuredRows
    judge: tuple[MeasuredRows, MeasuredRows]
    temperature: float
    ceilings: torch.Tensor | None
    codes: list[tuple[str, torch.Tensor]]

    def batch_losses(
        self, rows: Int64Array, offsets: Int64Array, breaks: Breaks | None = None
    ) -> tuple[float, float]:
        """Mean in-batch loss over the allowed pairs, x to y and y to x, in float64.

        Args:
            rows: int64 (entries,), the rows of all batches.
            offsets: int64 (batches + 1,), where each batch starts in them.
            breaks: counts the pairs that are not allowed, unless None.
        """
        losses = np.zeros(2)
        for entries in equal_batches(offsets, self.x.dim):
            members = rows[entries]
            for top in spans(entries.shape[1], TILE):
                losses += self._within_batches(members, top, breaks)
        forth, back = losses / len(rows)
        return float(forth), float(back)

    def all_losses(
        self, rows: Int64Array, advance: Callable[[int], None]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The loss of each of the ``rows``, int64 (S,), over all its allowed pairs, the mean of
        both directions, and how many of its pairs are not allowed; both float64 (S,).

        Similarities are float32. Doubtful pairs are computed again in float64, so that a pair
        breaks the guard here exactly if it does in a batch. ``advance`` counts the rows done.
        """
        losses, broken = np.empty((2, len(rows)))
        for start, stop in spans(len(rows), _QUERIES):
            losses[start:stop], broken[start:stop] = self._against_all(rows[start:stop])
            advance(stop - start)
        return losses, broken

    def _within_batches(
        self, members: Int64Array, top: Span, breaks: Breaks | None
    ) -> NDArray[np.float64]:
        """(2,) sums of losses of the entries ``top`` of equal batches, (batches, rows)."""
        x, y, own = self.x, self.y, members[:, slice(*top)]
        x_own, y_own = gather(x, own), gather(y, own)
        judge = None if self._own_judge else [gather(side, own) for side in self.judge]
        positive = torch.linalg.vecdot(x_own, y_own).div_(self.temperature)
        sums = [RunningLogSumExp(own.shape, x.device) for _ in range(2)]
        queries = torch.from_numpy(own).to(x.device)
        for left in spans(members.shape[1], TILE):
            others = members[:, slice(*left)]
            forth = x_own @ gather(y, others).mT
            back = forth.mT if top == left else y_own @ gather(x, others).mT
            keys = torch.from_numpy(others).to(x.device)
            highest = torch.maximum(forth, back)
            if judge is not None:
                highest = _highest(*judge, *(gather(side, others) for side in self.judge))
            masked = self._broken(queries, keys, highest, breaks)
            if top == left:
                masked.diagonal(dim1=1, dim2=2).fill_(True)  # the positive is added at the end
            for running, tile in zip(sums, (forth, back), strict=True):
                logits = tile.div(self.temperature).masked_fill_(masked, -torch.inf)
                running.add(logits, 2, slice(None), consume=True)
        losses = [torch.logaddexp(running.result(), positive) - positive for running in sums]
        return torch.stack(losses).sum(dim=(1, 2)).cpu().numpy()

    def _against_all(self, own: Int64Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`all_losses` of a few rows.

        The padding of blocks (see `MeasuredRows.block`) is cut off tiles.
        """
        x, y, count = self.x, self.y, len(own)
        x_own, y_own = x.some(own), y.some(own)
        positive = torch.linalg.vecdot(x_own.double(), y_own.double())[:count] / self.temperature
        sums = [RunningLogSumExp((count,), x.device) for _ in range(2)]
        judge = None if self._own_judge else [side.some(own) for side in self.judge]
        rows = torch.from_numpy(own).to(x.device)
        broken = torch.zeros(count, dtype=torch.float64, device=x.device)
        with full_float32():
            for first, last in spans(x.num_rows, _COLUMNS.get(x.device.type, 1024)):
                x_keys, y_keys = x.block(first, last), y.block(first, last)
                columns = torch.arange(first, last, device=x.device)
                forth = (x_own @ y_keys.T)[:count, : last - first]
                back = forth if x is y else (y_own @ x_keys.T)[:count, : last - first]
                highest, rounded = forth.maximum(back), [x_own, y_own, x_keys, y_keys]
                if judge is not None:
                    rounded = [*judge, *(side.block(first, last) for side in self.judge)]
                    highest = _highest(*rounded)[:count, : last - first]
                masked = self._broken_tile(rows, columns, highest, _slack(*rounded)[:count])
                broken += masked.sum(dim=1)
                masked |= rows[:, None] == columns
                for running, tile in zip(sums, (forth, back), strict=True):
                    logits = tile.div(self.temperature).masked_fill_(masked, -torch.inf)
                    running.add(logits, 1, slice(None), consume=True)
        losses = [torch.logaddexp(running.result(), positive) - positive for running in sums]
        return torch.stack(losses).mean(dim=0).cpu().numpy(), broken.cpu().numpy()

    def _broken(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        highest: torch.Tensor,
        breaks: Breaks | None,
    ) -> torch.Tensor:
        """Whether pairs of distinct rows break the guard, bool (..., R, C).

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows of each pair.
            highest: max(s_ij, s_ji) of each, (..., R, C).
            breaks: counts those that do, unless None.
        """
        different = rows.unsqueeze(-1) != columns.unsqueeze(-2)
        reasons = {"similarity": self._excess(rows, columns, highest).ge(0).logical_and_(different)}
        for reason, same in self._same(rows, columns):
            same.logical_and_(different)
            reasons[reason] = reasons[reason] | same if reason in reasons else same
        broken = torch.stack(list(reasons.values())).any(dim=0)
        if breaks is not None:
            for reason, mask in (*reasons.items(), ("any", broken)):
                breaks.by[reason] += int(mask.sum())
            breaks.affected[rows[broken.any(dim=-1)]] = True
        return broken

    def _broken_tile(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        highest: torch.Tensor,
        slack: torch.Tensor,
    ) -> torch.Tensor:
        """`_broken` of a float32 tile (R, C) with errors of at most ``slack`` (R,)."""
        excess = self._excess(rows, columns, highest)
        broken = excess >= 0
        for _, same in self._same(rows, columns):
            broken |= same
            excess.masked_fill_(same, torch.inf)  # beyond doubt
        different = rows[:, None] != columns
        broken &= different
        pairs = torch.nonzero((excess.abs() <= slack[:, None]) & different)
        for first, last in spans(len(pairs), max(1, _ELEMENTS // self.x.dim)):
            some = pairs[first:last]
            i, j = rows[some[:, 0]].cpu().numpy(), columns[some[:, 1]].cpu().numpy()
            x, y = self.judge
            exact = torch.linalg.vecdot(x.gather(i), y.gather(j))
            exact = exact.maximum(torch.linalg.vecdot(y.gather(i), x.gather(j)))
            pair = rows[some[:, :1]], columns[some[:, 1:]], exact[:, None, None]
            broken[some[:, 0], some[:, 1]] = self._excess(*pair)[:, 0, 0] >= 0
        return broken

    @property
    def _own_judge(self) -> bool:
        return self.judge == (self.x, self.y)

    def _excess(
        self, rows: torch.Tensor, columns: torch.Tensor, highest: torch.Tensor
    ) -> torch.Tensor:
        """How far pairs exceed the lower of their ceilings, float64; from 0 on they break it."""
        if self.ceilings is None:
            return torch.full_like(highest, -torch.inf)
        of_rows, of_columns = self.ceilings[rows], self.ceilings[columns]
        return highest - torch.minimum(of_rows.unsqueeze(-1), of_columns.unsqueeze(-2))

    def _same(
        self, rows: torch.Tensor, columns: torch.Tensor
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Each reason, and whether pairs share a code of it, bool (..., R, C)."""
        for reason, codes in self.codes:
            yield reason, codes[rows].unsqueeze(-1) == codes[columns].unsqueeze(-2)


def allowed_pairs(references: References, groups: Int64Array | None) -> AllowedPairs:
    """The pairs that the options and the ``groups``, int64 (N,), -1 for none, allow."""
    x, y, options = references.x, references.y, references.options
    *judge, bound = references.judge
    embeddings = references.embeddings
    matrices = [embeddings.x, embeddings.y][: 1 + embeddings.paired]
    total = x.num_rows * (len(matrices) + options.limited)
    with references.runtime.stage("guard", total=total) as advance:
        codes = [] if groups is None else [("group", groups)]
        codes += [("duplicate", duplicate_codes(matrix, advance)) for matrix in matrices]
        ceilings = None
        if options.limited:
            positive = torch.empty(x.num_rows, dtype=torch.float64, device=x.device)
            for start, stop in spans(x.num_rows, _ROWS_AT_ONCE):
                own = [side.block(start, stop).double() for side in judge]
                positive[start:stop] = torch.linalg.vecdot(*own)[: stop - start]
                advance(stop - start)
            ceilings = _ceilings(positive, options) - _TIE * bound
    no_code = -1 - np.arange(x.num_rows)  # unique, so that a test for equality is enough
    distinct = [
        (reason, torch.from_numpy(np.where(values < 0, no_code, values)).to(x.device))
        for reason, values in codes
        if values.max() >= 0
    ]
    return AllowedPairs(x, y, (judge[0], judge[1]), options.temperature, ceilings, distinct)


def _ceilings(positive: torch.Tensor, options: EvaluationOptions) -> torch.Tensor:
    """The similarity that negatives of each row must stay below."""
    if options.max_score is not None:
        return torch.full_like(positive, options.max_score)
    if options.absolute_margin is not None:
        return positive - options.absolute_margin
    margin = options.relative_margin or 0.0
    return torch.where(positive < 0, positive * (1 + margin), positive * (1 - margin))


def _highest(
    x_own: torch.Tensor, y_own: torch.Tensor, x_others: torch.Tensor, y_others: torch.Tensor
) -> torch.Tensor:
    """max(s_ij, s_ji), (..., R, C), of rows (..., R, d) and others (..., C, d)."""
    return torch.maximum(x_own @ y_others.mT, y_own @ x_others.mT)


def _slack(
    x_own: torch.Tensor, y_own: torch.Tensor, x_others: torch.Tensor, y_others: torch.Tensor
) -> torch.Tensor:
    """float32 (R,): a bound on the rounding errors of `_highest` in float32."""
    return _rounding(x_own, y_others).maximum(_rounding(y_own, x_others))


def _rounding(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """float32 (R,): a bound on the rounding errors of each query's products with all keys.

    Twice the bound for a dot product summed in any order, to cover the rounding of the bound.
    """
    lengths: torch.Tensor = torch.linalg.vector_norm(queries, dim=1)
    longest = torch.linalg.vector_norm(keys, dim=1).max()
    return lengths.mul_(longest).mul_(queries.shape[1] * torch.finfo(torch.float32).eps)
