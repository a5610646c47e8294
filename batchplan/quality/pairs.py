"""The pairs of rows that an evaluation compares, and which of them a guard allows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch

from batchplan.data import Embeddings
from batchplan.data.answers import answers_of
from batchplan.data.duplicates import document_codes, repeated_codes
from batchplan.errors import InputError
from batchplan.quality.facts import RowFacts
from batchplan.quality.guard.limits import ceilings_of
from batchplan.quality.guard.rule import GuardRule
from batchplan.quality.known import KnownPairs
from batchplan.quality.mined import MinedSides
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.runtime import Runtime

_LARGEST_LOGIT = 1e37  # float32 ends at 3e38
_ROWS_AT_ONCE = 4096
_TIE = 1e-10  # of the largest |s|: more than the rounding error of a float64 similarity

_BEATEN_ROWS = 1024  # some hundredths of a second, and two digits
_BEATEN_STREAM = int.from_bytes(b"figures")


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of N rows.

    Attributes:
        x, y: the two sides; the same object if the data is one matrix.
        mined: mined negatives, which anchors meet from x to y.
        temperature: tau.
        bound: the largest possible abs(x_i . y_j).
        guard: which pairs are likely false negatives; None allows all.
    """

    x: MeasuredRows
    y: MeasuredRows
    mined: MinedSides
    temperature: float
    bound: float
    guard: GuardRule | None = None

    @property
    def num_rows(self) -> int:
        return self.x.num_rows

    @property
    def alike(self) -> bool:
        """Whether both directions are the same: one matrix without mined negatives."""
        return self.y is self.x and not self.mined


def beaten_positives(embeddings: Embeddings, options: EvaluationOptions, runtime: Runtime) -> float:
    """Return the share of random negatives that are more similar than the own pair, from up to
    1,024 rows."""
    count = min(_BEATEN_ROWS, embeddings.num_rows)
    rows = runtime.generator(_BEATEN_STREAM).choice(embeddings.num_rows, count, replace=False)
    taken = embeddings.take(rows)
    pairs = unguarded_pairs(taken, options.similarity, options.temperature, runtime)
    x, y = (side.gather(np.arange(count)) for side in (pairs.x, pairs.y))
    scores = x @ y.T
    beaten = int((scores > scores.diagonal()[:, None] + _TIE * pairs.bound).sum())
    return beaten / (count * (count - 1))


def unguarded_pairs(
    embeddings: Embeddings, similarity: str, temperature: float, runtime: Runtime
) -> Pairs:
    """Return the pairs of rows of the data, all of them allowed.

    Raises:
        InputError: as `Embeddings.require_similarities`, or inner products over the temperature
            that float32 cannot hold.
    """
    device = runtime.torch_device()
    cosine = similarity == "cosine"
    embeddings.require_similarities(similarity)
    size = 4 * embeddings.num_rows * embeddings.dim * len(embeddings.matrices)
    hold = size <= runtime.memory_left(device) // 2
    x = MeasuredRows(embeddings.x, cosine, device, hold)
    y = MeasuredRows(embeddings.y, cosine, device, hold) if embeddings.paired else x
    negatives = tuple(MeasuredRows(matrix, cosine, device, hold) for matrix in embeddings.negatives)
    bound = 1.0 if cosine else x.longest() * max(side.longest() for side in (y, *negatives))
    if bound / temperature > _LARGEST_LOGIT:
        raise InputError(
            f"similarity dot: inner products may reach {bound:.3g}; divided by the temperature "
            f"{temperature:g}, that exceeds float32. Use similarity cosine or scale the embeddings "
            "down"
        )
    missing = embeddings.missing
    if missing is None:
        missing = np.zeros((len(negatives), embeddings.num_rows), np.bool_)
    documents = np.empty((0, embeddings.num_rows), np.int64)
    if negatives:
        documents = document_codes([embeddings.y, *embeddings.negatives])
    tensors = (torch.from_numpy(of).to(device) for of in (missing, documents))
    return Pairs(x, y, MinedSides(negatives, *tensors), temperature, bound)


def guarded_pairs(
    pairs: Pairs,
    embeddings: Embeddings,
    facts: RowFacts,
    options: EvaluationOptions,
    runtime: Runtime,
) -> Pairs:
    """Return the pairs with the guard of a limit and of groups; without both, they are unchanged.

    Args:
        pairs: the `unguarded_pairs` of the embeddings.
        facts: the groups, and the reference that judges the limit.
        options: the limit.

    Raises:
        InputError: as `unguarded_pairs`, about the reference.
    """
    groups, judge = facts.groups, pairs
    if not options.limited and groups is None:
        return pairs
    if facts.reference is not None:
        judge = unguarded_pairs(facts.reference, options.similarity, options.temperature, runtime)
    n, device = pairs.num_rows, pairs.x.device
    hashed = 0 if facts.answers else 1 + embeddings.paired
    with runtime.stage("guard", total=n * (hashed + options.limited)) as advance:
        codes = [] if groups is None else [("group", groups)]
        answers = facts.answers or answers_of(embeddings, advance=advance)
        equal = answers.anchors, answers.documents[0]
        codes += [("duplicate", repeated_codes(side)) for side in equal]
        ceilings = torch.full((n,), inf, dtype=torch.float64, device=device)
        if options.limited:
            for start, stop in spans(n, _ROWS_AT_ONCE):
                sides = [side.block(start, stop).double() for side in (judge.x, judge.y)]
                ceilings[start:stop] = torch.linalg.vecdot(*sides)[: stop - start]
                advance(stop - start)
            limits = ceilings_of(ceilings.cpu().numpy(), options) - _TIE * judge.bound
            ceilings = torch.from_numpy(limits).to(device)
    no_code = -1 - np.arange(n)  # unique, so that a test for equality is enough
    distinct = [
        (reason, torch.from_numpy(np.where(values < 0, no_code, values)).to(device))
        for reason, values in codes
        if values.max() >= 0
    ]
    own = judge is pairs
    known = KnownPairs(answers)
    guard = GuardRule(
        judge.x, judge.y, own, pairs.mined, judge.bound, ceilings, distinct, known or None
    )
    return replace(pairs, guard=guard)


def meet(
    pairs: Pairs,
    own: Callable[[MeasuredRows], torch.Tensor],
    others: Callable[[MeasuredRows], torch.Tensor],
    rows: torch.Tensor,
    columns: torch.Tensor,
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Compare rows with columns.

    Args:
        own, others: read the rows and the columns of a side, (..., R, d) and (..., C, d), perhaps
            with padding; the same object if the columns are the rows.
        rows, columns: int64 (..., R) and (..., C), their numbers.

    Returns:
        The logits x to y and y to x; max(s_ij, s_ji), as the guard judges it; and the same of all
        documents of the two rows; each (..., R, C).
    """
    x, y, mined, guard, tau = pairs.x, pairs.y, pairs.mined, pairs.guard, pairs.temperature
    at = ..., slice(rows.shape[-1]), slice(columns.shape[-1])

    def both(left: MeasuredRows, right: MeasuredRows) -> tuple[torch.Tensor, torch.Tensor]:
        forth = (own(left) @ others(right).mT)[at]
        if own is others:
            return forth, forth.mT
        return forth, forth if left is right else (own(right) @ others(left).mT)[at]

    forth, back = both(x, y)
    logits = forth / tau
    back_logits = logits.mT if own is others else back / tau
    highest = largest = torch.maximum(forth, back)
    for side, missing in zip(mined.sides, mined.missing, strict=True):
        there, here = both(x, side)
        largest = largest.maximum(there).maximum(here)
        tile = (there / tau).masked_fill_(missing[columns].unsqueeze(-2), -inf)
        logits = torch.logaddexp(logits, tile)
    if guard is not None and not guard.own:
        highest = largest = torch.maximum(*both(guard.x, guard.y))
    return (logits, back_logits), highest, largest
