"""Measures a plan by lists of candidates: bounds of its losses from x to y.

Everything follows from the listed pairs whose rows share a batch. A row that is not listed has at
most the lowest score of the list, so each loss has two bounds: such rows count as that score, or
not at all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np

from batchplan.data import Candidates
from batchplan.kernels import njit
from batchplan.keywords import EvaluationKeywords
from batchplan.options import LIMITS, with_options
from batchplan.plans import Plan
from batchplan.quality.coverage import Coverage, coverage
from batchplan.quality.guard.ceilings import ceilings as ceilings_of
from batchplan.quality.guard.limits import with_limit
from batchplan.quality.measured import RECALLED
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.references import random_orders
from batchplan.runtime import Observer, Runtime
from batchplan.typing import Int64Array

_TIE = 1e-7  # scores are float32: those this close to a ceiling reach it


@dataclass(frozen=True, kw_only=True)
class ListedEvaluation:
    """How good a plan is by lists of candidates. Losses are in nats, from x to y.

    Attributes:
        num_rows, num_batches, batch_size, temperature: of the plan and the options.
        loss_train, loss_random: mean loss in the batches, and in random batches, where rows that
            are not listed count as the lowest score of the list.
        loss_train_least, loss_random_least: the same without these rows; the true loss is between.
        loss_oracle: the same as ``loss_train`` if each row had its first candidates in its batch.
        oracle_share: (loss_train - loss_random) / (loss_oracle - loss_random).
        hard_negative_recall: by ``1`` and ``10``, the share of each row's first candidates that are
            in its batch.
        listed_share: share of the ordered in-batch pairs that are listed.
        limit: the limit of the guard, by its name; empty without one.
        broken: in-batch pairs that break it by a listed score; None without a limit.
        broken_random: the same in random batches, on average.
        coverage: how often the plan has each row.
    """

    num_rows: int
    num_batches: int
    batch_size: int
    temperature: float
    loss_train: float
    loss_train_least: float
    loss_random: float
    loss_random_least: float
    loss_oracle: float
    oracle_share: float
    hard_negative_recall: dict[str, float]
    listed_share: float
    limit: dict[str, float]
    broken: int | None
    broken_random: float | None
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


@with_options(EvaluationOptions)
def evaluate_candidates(
    plan: Plan,
    candidates: Candidates,
    *,
    seed: int = 0,
    observer: Observer | None = None,
    **options: Unpack[EvaluationKeywords],
) -> ListedEvaluation:
    """Measure a plan by lists of candidates, in O(E) for E candidates and each random plan.

    Args:
        plan: a plan of these candidates, or of as many rows in the same order.
        candidates: mined lists.
        seed, observer: see `Runtime`; the seed draws the random plans.
        options: fields of `EvaluationOptions`; those that need vectors do nothing.

    Raises:
        InputError: an option out of range, or a plan of other data.
    """
    runtime = Runtime("cpu", None, seed, observer)
    return evaluate_lists(plan, candidates, EvaluationOptions(**options), runtime)


def evaluate_lists(
    plan: Plan, candidates: Candidates, options: EvaluationOptions, runtime: Runtime
) -> ListedEvaluation:
    """Do what `evaluate_candidates` does, with options and a runtime."""
    plan.require_match(candidates.num_rows, None)
    options, _ = with_limit([plan], options)
    own, floors = (part.astype(np.float64) for part in (candidates.positive, candidates.floors))
    ceilings = np.full(len(own), np.inf)
    if options.limited:
        ceilings = ceilings_of(own, options) - _TIE
    lists = candidates.indptr, candidates.indices, candidates.scores
    fixed = lists, (own, floors, ceilings), options.temperature
    offsets, n = plan.batch_offsets, candidates.num_rows
    measured = _measure(plan.rows, offsets, *fixed)
    trials = []
    with runtime.stage("random batches", total=options.random_trials) as advance:
        for rows in random_orders(n, offsets, options.random_trials, runtime):
            trials.append(_measure(rows, offsets, *fixed))
            advance(1)
    loss_random, least, broken = (
        float(np.mean([getattr(one, name) for one in trials]))
        for name in ("loss", "least", "broken")
    )
    oracle = float(_oracle(*fixed, plan.batch_size))
    reach = oracle - loss_random
    sizes = np.diff(offsets)
    pairs = int((sizes * (sizes - 1)).sum())
    return ListedEvaluation(
        num_rows=n,
        num_batches=plan.num_batches,
        batch_size=plan.batch_size,
        temperature=options.temperature,
        loss_train=measured.loss,
        loss_train_least=measured.least,
        loss_random=loss_random,
        loss_random_least=least,
        loss_oracle=oracle,
        oracle_share=(measured.loss - loss_random) / reach if abs(reach) > 1e-9 else 1.0,
        hard_negative_recall={str(m): measured.recalls[m] for m in RECALLED},
        listed_share=measured.listed / pairs if pairs else 0.0,
        limit={name: value for name in LIMITS if (value := getattr(options, name)) is not None},
        broken=measured.broken if options.limited else None,
        broken_random=broken if options.limited else None,
        coverage=coverage(plan.rows, n),
    )


class _Measured(NamedTuple):
    """Figures of some batches.

    Attributes:
        loss, least: the bounds of the mean loss.
        listed: ordered pairs that are listed.
        broken: unordered pairs that break the guard.
        recalls: by the number of candidates.
    """

    loss: float
    least: float
    listed: int
    broken: int
    recalls: dict[int, float]


def _measure(rows: Int64Array, offsets: Int64Array, *fixed: Any) -> _Measured:
    """Measure the batches of ``rows``, int64 (entries,), which start at ``offsets``."""
    found, wanted = np.zeros((2, len(RECALLED)), np.int64)
    first = np.array(RECALLED)
    loss, least, listed, broken = _sums(rows.copy(), offsets.copy(), *fixed, first, found, wanted)
    recalls = found / np.maximum(wanted, 1)
    shares = dict(zip(RECALLED, recalls.tolist(), strict=True))
    return _Measured(loss / len(rows), least / len(rows), listed, broken, shares)


@njit
def _sums(  # type: ignore[no-untyped-def]
    rows, offsets, lists, of_rows, temperature, first, found, wanted
):
    """Sum over the entries of all batches.

    Returns:
        The loss with unlisted rows at the floor, and without them; the ordered pairs that are
        listed; and the unordered pairs that break the guard.

    ``found`` and ``wanted`` get how many of the ``first`` candidates are in the batches, and how
    many there are.
    """
    indptr, indices, scores = lists
    own, floors, ceilings = of_rows
    holder = np.full(own.size, -1, np.int64)  # the last batch that has a row
    loss = least = 0.0
    listed = broken = 0
    for batch in range(offsets.size - 1):
        members = rows[offsets[batch] : offsets[batch + 1]]
        for row in members:
            holder[row] = batch
        for i in members:
            start, end = indptr[i], indptr[i + 1]
            peak = max(own[i], floors[i])
            if end > start:
                peak = max(peak, scores[start])
            total, count = np.exp((own[i] - peak) / temperature), 0
            for e in range(start, end):
                j = indices[e]
                if holder[j] != batch:
                    continue
                total += np.exp((scores[e] - peak) / temperature)
                count += 1
                near = scores[e] >= min(ceilings[i], ceilings[j])
                broken += near and (i < j or not _lists_near(j, i, lists, ceilings))
                for k in range(first.size):
                    found[k] += e - start < first[k]
            for k in range(first.size):
                wanted[k] += min(first[k], end - start)
            floor = np.exp((floors[i] - peak) / temperature)
            positive = (own[i] - peak) / temperature
            least += np.log(total) - positive
            loss += np.log(total + (members.size - 1 - count) * floor) - positive
            listed += count
    return loss, least, listed, broken


@njit
def _lists_near(row, other, lists, ceilings):  # type: ignore[no-untyped-def]
    """Whether a row lists another one with a score that breaks the guard."""
    indptr, indices, scores = lists
    for e in range(indptr[row], indptr[row + 1]):
        if indices[e] == other:
            return scores[e] >= min(ceilings[row], ceilings[other])
    return False


@njit
def _oracle(lists, of_rows, temperature, batch_size):  # type: ignore[no-untyped-def]
    indptr, _, scores = lists
    own, floors, _ = of_rows
    loss = 0.0
    for i in range(own.size):
        start = indptr[i]
        end = min(indptr[i + 1], start + batch_size - 1)
        peak = max(own[i], floors[i])
        if end > start:
            peak = max(peak, scores[start])
        total = np.exp((own[i] - peak) / temperature)
        for e in range(start, end):
            total += np.exp((scores[e] - peak) / temperature)
        total += (batch_size - 1 - (end - start)) * np.exp((floors[i] - peak) / temperature)
        loss += np.log(total) - (own[i] - peak) / temperature
    return loss / own.size
