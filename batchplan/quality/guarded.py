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
_TIE = 1e-10  # of the largest |s|: more than rounding takes from a float64 similarity
_QUERIES = 1024
_COLUMNS = {"cpu": 1024, "cuda": 8192}
_ELEMENTS = 1 << 21  # numbers of the rows gathered to settle what float32 leaves in doubt


@dataclass(frozen=True, eq=False)
class Breaks:
    """The pairs of a plan that break a guard.

    Attributes:
        affected: bool (N,), the rows that break it with another row of a batch of theirs.
        by: their number by reason; ``any`` counts those of several reasons once. Each pair is met
            from both its rows, and counts 2.
    """

    affected: torch.Tensor
    by: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("any", "similarity", "group", "duplicate"), 0)
    )


@dataclass(frozen=True, eq=False)
class AllowedPairs:
    """The pairs of some data that do not break a guard.

    Two rows break it if a similarity of theirs reaches a ceiling of theirs, or they share a code.

    Attributes:
        x, y: the data as it is measured.
        temperature: tau.
        ceilings: float64 (N,), less what rounding may take from a tie; None where no similarity is
            too high.
        codes: by reason, int64 (N,) each. Each row without a code has a negative one of its own.
    """

    x: MeasuredRows
    y: MeasuredRows
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
            breaks: counts the pairs that are not allowed, if given.
        """
        losses = np.zeros(2)
        for entries in equal_batches(offsets, self.x.dim):
            members = rows[entries]
            for top in spans(entries.shape[1], TILE):
                losses += self._within_batches(members, top, breaks)
        forth, back = losses / len(rows)
        return float(forth), float(back)

    def all_losses(self, advance: Callable[[int], None]) -> tuple[tuple[float, float], int]:
        """Mean loss over all allowed pairs, x to y and y to x, and how many pairs are not allowed.

        Similarities are float32. What that leaves in doubt is computed again in float64, so that a
        pair breaks the guard here if it does in a batch. ``advance`` is told of rows done.
        """
        losses, broken = np.zeros(2), 0
        for start, stop in spans(self.x.num_rows, _QUERIES):
            of_block, more = self._against_all(start, stop)
            losses += of_block
            broken += more
            advance(stop - start)
        forth, back = losses / self.x.num_rows
        return (float(forth), float(back)), broken // 2  # each pair was met from both its rows

    def _within_batches(
        self, members: Int64Array, top: Span, breaks: Breaks | None
    ) -> NDArray[np.float64]:
        """(2,) sums of losses: entries ``top`` of a few equal batches (batches, rows)."""
        x, y, own = self.x, self.y, members[:, slice(*top)]
        x_own, y_own = gather(x, own), gather(y, own)
        positive = torch.linalg.vecdot(x_own, y_own).div_(self.temperature)
        sums = [RunningLogSumExp(own.shape, x.device) for _ in range(2)]
        queries = torch.from_numpy(own).to(x.device)
        for left in spans(members.shape[1], TILE):
            others = members[:, slice(*left)]
            forth = x_own @ gather(y, others).mT
            back = forth.mT if top == left else y_own @ gather(x, others).mT
            keys = torch.from_numpy(others).to(x.device)
            masked = self._broken(queries, keys, torch.maximum(forth, back), breaks)
            if top == left:
                masked.diagonal(dim1=1, dim2=2).fill_(True)  # the positive is added at the end
            for running, tile in zip(sums, (forth, back), strict=True):
                logits = tile.div(self.temperature).masked_fill_(masked, -torch.inf)
                running.add(logits, 2, slice(None), consume=True)
        losses = [torch.logaddexp(one.result(), positive) - positive for one in sums]
        return torch.stack(losses).sum(dim=(1, 2)).cpu().numpy()

    def _against_all(self, start: int, stop: int) -> tuple[NDArray[np.float64], int]:
        """(2,) sums of losses of rows start to stop against all N, and how many pairs of these are
        not allowed.

        Blocks end with rows of zeros (see `MeasuredRows.block`), of which tiles are cut free.
        """
        x, y, count = self.x, self.y, stop - start
        x_own, y_own = x.block(start, stop), y.block(start, stop)
        positive = torch.linalg.vecdot(x_own.double(), y_own.double())[:count] / self.temperature
        sums = [RunningLogSumExp((count,), x.device) for _ in range(2)]
        rows = torch.arange(start, stop, device=x.device)
        broken = 0
        with full_float32():
            for first, last in spans(x.num_rows, _COLUMNS.get(x.device.type, 1024)):
                x_keys, y_keys = x.block(first, last), y.block(first, last)
                columns = torch.arange(first, last, device=x.device)
                forth = (x_own @ y_keys.T)[:count, : last - first]
                back = forth if x is y else (y_own @ x_keys.T)[:count, : last - first]
                slack = _rounding(x_own, y_keys).maximum(_rounding(y_own, x_keys))[:count]
                masked = self._broken_tile(rows, columns, forth.maximum(back), slack)
                broken += int(masked.sum())
                masked |= rows[:, None] == columns
                for running, tile in zip(sums, (forth, back), strict=True):
                    logits = tile.div(self.temperature).masked_fill_(masked, -torch.inf)
                    running.add(logits, 1, slice(None), consume=True)
        losses = [torch.logaddexp(one.result(), positive) - positive for one in sums]
        return torch.stack(losses).sum(dim=1).cpu().numpy(), broken

    def _broken(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        highest: torch.Tensor,
        breaks: Breaks | None,
    ) -> torch.Tensor:
        """Whether pairs of different rows break the guard, bool (..., R, C); those are counted.

        Args:
            rows, columns: int64 (..., R) and (..., C), the two rows of each pair.
            highest: max(s_ij, s_ji) of each, (..., R, C).
            breaks: counts them, if given.
        """
        different = rows.unsqueeze(-1) != columns.unsqueeze(-2)
        reasons = {"similarity": self._excess(rows, columns, highest).ge(0).logical_and_(different)}
        for reason, same in self._same(rows, columns):
            same.logical_and_(different)
            reasons[reason] = reasons[reason] | same if reason in reasons else same
        found = torch.stack(list(reasons.values())).any(dim=0)
        if breaks is not None:
            for reason, mask in (*reasons.items(), ("any", found)):
                breaks.by[reason] += int(mask.sum())
            breaks.affected[rows[found.any(dim=-1)]] = True
        return found

    def _broken_tile(
        self,
        rows: torch.Tensor,
        columns: torch.Tensor,
        highest: torch.Tensor,
        slack: torch.Tensor,
    ) -> torch.Tensor:
        """`_broken` of a float32 tile (R, C) whose rows are off by at most ``slack`` (R,)."""
        excess = self._excess(rows, columns, highest)
        found = excess >= 0
        for _, same in self._same(rows, columns):
            found |= same
            excess.masked_fill_(same, torch.inf)  # no doubt about these
        different = rows[:, None] != columns
        found &= different
        pairs = torch.nonzero((excess.abs() <= slack[:, None]) & different)
        for first, last in spans(len(pairs), max(1, _ELEMENTS // self.x.dim)):
            some = pairs[first:last]
            i, j = rows[some[:, 0]].cpu().numpy(), columns[some[:, 1]].cpu().numpy()
            exact = torch.linalg.vecdot(self.x.gather(i), self.y.gather(j))
            exact = exact.maximum(torch.linalg.vecdot(self.y.gather(i), self.x.gather(j)))
            pair = rows[some[:, :1]], columns[some[:, 1:]], exact[:, None, None]
            found[some[:, 0], some[:, 1]] = self._excess(*pair)[:, 0, 0] >= 0
        return found

    def _excess(
        self, rows: torch.Tensor, columns: torch.Tensor, highest: torch.Tensor
    ) -> torch.Tensor:
        """How far pairs are above the lower of their ceilings, float64; they break it from 0 on."""
        if self.ceilings is None:
            return torch.full_like(highest, -torch.inf)
        one, other = self.ceilings[rows].unsqueeze(-1), self.ceilings[columns].unsqueeze(-2)
        return highest - torch.minimum(one, other)

    def _same(
        self, rows: torch.Tensor, columns: torch.Tensor
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """By reason, whether pairs share a code, bool (..., R, C)."""
        for reason, codes in self.codes:
            yield reason, codes[rows].unsqueeze(-1) == codes[columns].unsqueeze(-2)


def allowed_pairs(references: References, groups: Int64Array | None) -> AllowedPairs:
    """The pairs that the guard of the options allows; ``groups`` int64 (N,), -1 for none, is
    another part of it. One pass over the rows."""
    x, y, options = references.x, references.y, references.options
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
                own = x.block(start, stop).double(), y.block(start, stop).double()
                positive[start:stop] = torch.linalg.vecdot(*own)[: stop - start]
                advance(stop - start)
            ceilings = _ceilings(positive, options) - _TIE * references.bound
    told_apart = [
        # Each -1 is another negative number, so that equality is all there is to ask.
        (reason, torch.from_numpy(np.where(one < 0, -1 - np.arange(len(one)), one)).to(x.device))
        for reason, one in codes
        if one.max() >= 0
    ]
    return AllowedPairs(x, y, options.temperature, ceilings, told_apart)


def _ceilings(positive: torch.Tensor, options: EvaluationOptions) -> torch.Tensor:
    """The similarity that negatives of each row must stay below."""
    if options.max_score is not None:
        return torch.full_like(positive, options.max_score)
    if options.absolute_margin is not None:
        return positive - options.absolute_margin
    margin = options.relative_margin or 0.0
    return torch.where(positive < 0, positive * (1 + margin), positive * (1 - margin))


def _rounding(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """float32 (R,): a bound of the rounding errors of the products of each query with all keys.

    Twice the bound of a dot product summed in any order, for the rounding of the bound itself.
    """
    lengths: torch.Tensor = torch.linalg.vector_norm(queries, dim=1)
    longest = torch.linalg.vector_norm(keys, dim=1).max()
    return lengths.mul_(longest).mul_(queries.shape[1] * torch.finfo(torch.float32).eps)
