"""Finds the hardest negatives of rows in their batches, and the rows that are kept away."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch

from batchplan.data.answers import Answers
from batchplan.errors import InputError
from batchplan.plans import Plan
from batchplan.quality.known import KnownPairs
from batchplan.quality.pairs import Pairs, meet
from batchplan.quality.rows import MeasuredRows, spans
from batchplan.typing import BoolArray, Float64Array, Int64Array

MOST = 400  # rows of a page
_OTHERS = 3  # of a row, in its batch and elsewhere
_AT_ONCE = 4096  # rows that are compared
_REASONS = {
    "known": "known answer",
    "group": "same group",
    "duplicate": "an equal side",
    "similarity": "reaches the limit",
    "negative": "a mined negative reaches the limit",
}


@dataclass(frozen=True)
class Other:
    """Another row, and its similarity by the model that is trained: the larger one of both
    directions, and of all documents.

    Attributes:
        reason: why the two must not share a batch; "" if they may.
    """

    row: int
    similarity: float
    reason: str


@dataclass(frozen=True)
class ShownRow:
    """A row of a batch.

    Attributes:
        batch: its number in the plan, from 0.
        positive: the similarity of its own pair.
        negatives: the hardest ones of its batch.
        away: the most similar rows of other batches that must not be in its batch.
    """

    row: int
    batch: int
    positive: float
    negatives: list[Other]
    away: list[Other]


def shown_rows(
    pairs: Pairs,
    plan: Plan,
    losses: Float64Array,
    answers: Answers,
    asked: Sequence[int],
    advance: Callable[[int], None],
) -> list[ShownRow]:
    """Return up to `MOST` rows: the batches of ``asked`` rows, then those with the highest losses.

    Args:
        pairs: of the rows that are planned, with the guard that judges them.
        losses: float64 (batches,).
        advance: called with the number of rows that all shown ones were compared with.

    Raises:
        InputError: an asked row is in no batch.
    """
    offsets, ordered = plan.batch_offsets, np.argsort(-losses, kind="stable").tolist()
    batches = list(dict.fromkeys([*_batches_of(plan, asked), *ordered[:MOST]]))
    spread = [np.arange(offsets[batch], offsets[batch + 1]) for batch in batches]
    first = np.sort(np.unique(plan.rows[np.concatenate(spread)], return_index=True)[1])[:MOST]
    rows = plan.rows[np.concatenate(spread)[first]]
    at = np.repeat(np.arange(len(batches)), [len(entries) for entries in spread])[first]
    member = np.zeros((at[-1] + 1, pairs.num_rows), np.bool_)
    for own, entries in zip(member, spread, strict=False):
        own[plan.rows[entries]] = True
    known = partial(_known, answers, KnownPairs(answers), rows)
    index = torch.from_numpy(rows).to(pairs.x.device)
    found = [torch.empty((2, len(rows), 0), device=index.device, dtype=torch.float64)] * 2
    for start, stop in spans(pairs.num_rows, _AT_ONCE):
        columns = torch.arange(start, stop, device=index.device)
        others = partial(MeasuredRows.block, start=start, stop=stop)
        judged, similar = _compared(pairs, lambda side: side.some(rows), others, index, columns)
        inside = torch.from_numpy(member[at, start:stop]).to(index.device)
        kept = torch.from_numpy(known(np.arange(start, stop))).to(index.device)
        if pairs.guard is not None:
            kept |= pairs.guard.reasons(index, columns, *judged)["any"]
        for number, mask in enumerate((inside & (columns != index[:, None]), kept & ~inside)):
            values = similar.double().masked_fill(~mask, -inf)
            part = torch.stack([values, columns.double().expand_as(values)])
            joined = torch.cat([found[number], part], dim=2)
            order = joined[0].sort(descending=True, stable=True).indices[:, :_OTHERS]
            found[number] = joined.gather(2, order.expand(2, -1, -1))
        advance(stop - start)
    sides = [side.gather(rows) for side in (pairs.x, pairs.y)]
    positive = torch.linalg.vecdot(*sides).tolist()
    others_of = [_others(pairs, rows, known, *best) for best in found]
    return [
        ShownRow(int(row), batches[at[place]], positive[place], others_of[0][place],
                 [other for other in others_of[1][place] if other.reason])
        for place, row in enumerate(rows)
    ]  # fmt: skip


def _batches_of(plan: Plan, asked: Sequence[int]) -> list[int]:
    """Return the first batch of each asked row."""
    batches = []
    for row in asked:
        entries = np.flatnonzero(plan.rows == row)
        if not len(entries):
            raise InputError(
                f"row: got {row}, which no batch of the plan has; its data have "
                f"{plan.metadata.num_rows} rows, from 0"
            )
        batches.append(int(np.searchsorted(plan.batch_offsets, entries[0], side="right")) - 1)
    return batches


def _compared(pairs: Pairs, *sides: Any) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the similarities that the guard judges, and the largest ones of the data.

    Args:
        sides: as of `meet`.
    """
    _, highest, largest = meet(pairs, *sides)
    own = pairs.guard is None or pairs.guard.own
    similar = largest if own else meet(replace(pairs, guard=None), *sides)[2]
    return (highest, largest), similar


def _known(
    answers: Answers, crossing: KnownPairs, rows: Int64Array, columns: Int64Array
) -> BoolArray:
    """Return whether two different rows have a known answer of each other: bool (R, C).

    Args:
        rows: int64 (R,).
        columns: int64 (C,), or (R, C) for other rows of each row.
    """
    own = rows[:, None]
    met = crossing.met(own, columns)[:, 0] if columns.ndim == 2 else crossing.met(rows, columns)
    equal = [codes[own] == codes[columns] for codes in (answers.anchors, answers.documents[0])]
    return np.asarray((met | equal[0] | equal[1]) & (own != columns))


def _others(
    pairs: Pairs,
    rows: Int64Array,
    known: Callable[[Int64Array], BoolArray],
    values: torch.Tensor,
    at: torch.Tensor,
) -> list[list[Other]]:
    """Return other rows with the reasons that keep them from each row.

    Args:
        known: of some columns, as `_known`.
        values, at: (rows, k), the similarities, -inf for none, and the numbers of the others.
    """
    columns = at.long()
    flat, shape = columns.cpu().numpy().ravel(), (*columns.shape, -1)
    index = torch.from_numpy(rows).to(columns.device)[:, None]
    judged, _ = _compared(
        pairs, lambda side: side.gather(rows)[:, None], lambda side: side.gather(flat).view(shape),
        index, columns,
    )  # fmt: skip
    judge = " of the reference" * (pairs.guard is not None and not pairs.guard.own)
    broken = {} if pairs.guard is None else pairs.guard.reasons(index, columns, *judged)
    broken["known"] = torch.from_numpy(known(columns.cpu().numpy()))[:, None]
    lists: list[list[Other]] = []
    for place, similarities in enumerate(values.tolist()):
        lists.append([])
        for number, similarity in enumerate(similarities):
            if similarity > -inf:
                other = int(columns[place, number])
                reasons = [
                    words + judge * words.endswith("limit") for why, words in _REASONS.items()
                    if why in broken and broken[why][place, 0, number]
                ]  # fmt: skip
                lists[-1].append(Other(other, similarity, ", ".join(reasons)))
    return lists
