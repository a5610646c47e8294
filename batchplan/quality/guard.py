"""What a guard against false negatives finds in the batches of a plan, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guarded import Breaks, guarded_batches, guarded_rows
from batchplan.quality.guardrules import GuardRules, guard_rules
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.rows import Side
from batchplan.quality.trials import random_orders
from batchplan.runtime import Runtime

if TYPE_CHECKING:
    from batchplan.data import Embeddings
    from batchplan.plans import Plan

Int64Array = NDArray[np.int64]

_NOISE = 1e-6  # relative to the largest logit: losses of float32 similarities this close are equal


@dataclass(frozen=True, kw_only=True)
class GuardReport:
    """The pairs of a plan that are likely false negatives, and its losses without them.

    With p_i = x_i . y_i, the ceiling of row i is max_similarity * p_i or p_i - margin. A pair
    {i, j} breaks the guard by ``similarity`` if max(s_ij, s_ji) reaches the ceiling of i or of j,
    by ``group`` if both carry the same group, and by ``duplicate`` if their x or their y are equal;
    otherwise it is allowed. This is the positive-aware mining of NV-Retriever (Moreira et al. 2024,
    arXiv 2407.15831) for both rows of a pair and both directions. Losses are in nats, means of both
    directions.

    Attributes:
        max_similarity, margin: the guard; both None if it looks at no similarity.
        pairs: unordered pairs {i, j} of two rows of a batch, in all batches.
        broken: those that break the guard.
        broken_share: broken / pairs, None where every batch holds one row.
        broken_share_random: its expectation for random batches, exactly.
        by: by ``similarity``, ``group`` and ``duplicate``, the pairs that break it for that reason;
            a pair may do so for several.
        rows_affected: different rows that break the guard with a row of a batch of theirs.
        loss_train: NT-Xent loss of the plan's batches where each entry meets its positive and only
            the rows of its batch that are allowed to it.
        loss_global: likewise against all N rows.
        loss_random: likewise for the random plans that `Evaluation` compares with.
        gap: loss_global - loss_train.
        gap_reduction: 1 - gap / (loss_global - loss_random), 0 where the latter is 0.
    """

    max_similarity: float | None
    margin: float | None
    pairs: int
    broken: int
    broken_share: float | None
    broken_share_random: float
    by: dict[str, int]
    rows_affected: int
    loss_train: float
    loss_global: float
    loss_random: float
    gap: float
    gap_reduction: float


def guard_report(
    plan: Plan,
    embeddings: Embeddings,
    x: Side,
    y: Side,
    bound: float,
    options: EvaluationOptions,
    groups: Int64Array | None,
    runtime: Runtime,
) -> GuardReport | None:
    """Measure a plan with the guard of the options; None if there is none and no groups.

    Args:
        plan: of the data.
        embeddings: N pairs.
        x, y: the same rows as they are measured.
        bound: of |x_i . y_j|.
        options: the guard, the temperature, the number of random plans.
        groups: int64 (N,), -1 for none.
        runtime: seed and progress.
    """
    if not options.limited and groups is None:
        return None
    rules = guard_rules(
        embeddings, x, y, bound, runtime,
        max_similarity=options.max_similarity, margin=options.margin, groups=groups,
    )  # fmt: skip
    tau, n = options.temperature, x.num_rows
    breaks = Breaks(torch.zeros(n, dtype=torch.bool, device=x.device))
    train = _mean(guarded_batches(x, y, plan.rows, plan.batch_offsets, tau, rules, breaks))
    random = _random_loss(x, y, plan.batch_offsets, options, rules, runtime)
    with runtime.stage("allowed pairs", total=n) as advance:
        losses, broken = guarded_rows(x, y, tau, rules, advance)
    everything = _mean(losses)

    sizes = np.diff(plan.batch_offsets)
    pairs = int((sizes * (sizes - 1)).sum()) // 2
    found = {reason: count // 2 for reason, count in breaks.by.items()}
    in_plan = found.pop("any")
    gap_random = everything - random
    defined = abs(gap_random) > _NOISE * bound / tau
    return GuardReport(
        max_similarity=options.max_similarity,
        margin=options.margin,
        pairs=pairs,
        broken=in_plan,
        broken_share=in_plan / pairs if pairs else None,
        # Two places of a random batch hold any two different rows with equal probability.
        broken_share_random=broken / (n * (n - 1) // 2),
        by=found,
        rows_affected=int(breaks.affected.sum()),
        loss_train=train,
        loss_global=everything,
        loss_random=random,
        gap=everything - train,
        gap_reduction=(train - random) / gap_random if defined else 0.0,
    )


def _random_loss(
    x: Side,
    y: Side,
    offsets: Int64Array,
    options: EvaluationOptions,
    rules: GuardRules,
    runtime: Runtime,
) -> float:
    """The mean loss over allowed pairs of random plans."""
    trials = options.random_trials
    losses = []
    with runtime.stage("allowed at random", total=trials) as advance:
        for rows in random_orders(x.num_rows, offsets, trials, runtime):
            losses.append(_mean(guarded_batches(x, y, rows, offsets, options.temperature, rules)))
            advance(1)
    return float(np.mean(losses))


def _mean(directions: tuple[float, float]) -> float:
    return sum(directions) / 2
