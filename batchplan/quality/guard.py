"""What a guard against false negatives finds in the batches of a plan, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from batchplan.quality.guarded import Breaks, guarded_batches, guarded_rows
from batchplan.quality.guardrules import GuardRules, guard_rules
from batchplan.quality.options import EvaluationOptions
from batchplan.quality.references import References
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


class GuardMeter:
    """Measures plans of the same data with a guard; what all rows show is computed once.

    Args:
        embeddings: N pairs.
        references: the same rows as they are measured.
        options: the guard, the temperature, the number of random plans.
        groups: int64 (N,), -1 for none.
        runtime: seed and progress.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        references: References,
        options: EvaluationOptions,
        groups: Int64Array | None,
        runtime: Runtime,
    ):
        self._embeddings = embeddings
        self._references = references
        self._options = options
        self._groups = groups
        self._runtime = runtime
        self._random: dict[bytes, float] = {}

    def report(self, plan: Plan) -> GuardReport | None:
        """Of a plan of the data; None if there is neither a guard nor groups."""
        options, n = self._options, self._embeddings.num_rows
        if not options.limited and self._groups is None:
            return None
        x, y, rows, offsets = self._references.x, self._references.y, plan.rows, plan.batch_offsets
        breaks = Breaks(torch.zeros(n, dtype=torch.bool, device=x.device))
        train = _mean(
            guarded_batches(x, y, rows, offsets, options.temperature, self._rules, breaks)
        )
        random = self._random_loss(offsets)
        everything, broken = self._all_rows

        sizes = np.diff(offsets)
        pairs = int((sizes * (sizes - 1)).sum()) // 2
        found = {reason: count // 2 for reason, count in breaks.by.items()}
        in_plan = found.pop("any")
        gap_random = everything - random
        defined = abs(gap_random) > _NOISE * self._references.bound / options.temperature
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

    @cached_property
    def _rules(self) -> GuardRules:
        references, options = self._references, self._options
        return guard_rules(
            self._embeddings, references.x, references.y, references.bound, self._runtime,
            max_similarity=options.max_similarity, margin=options.margin, groups=self._groups,
        )  # fmt: skip

    @cached_property
    def _all_rows(self) -> tuple[float, int]:
        """The mean loss over all allowed pairs, and how many are not allowed."""
        x, y, tau = self._references.x, self._references.y, self._options.temperature
        with self._runtime.stage("allowed pairs", total=x.num_rows) as advance:
            losses, broken = guarded_rows(x, y, tau, self._rules, advance)
        return _mean(losses), broken

    def _random_loss(self, offsets: Int64Array) -> float:
        """The mean loss over allowed pairs of random plans, once for the same batch sizes."""
        key = offsets.tobytes()
        if key in self._random:
            return self._random[key]
        x, y, tau, trials = (
            self._references.x, self._references.y,
            self._options.temperature, self._options.random_trials,
        )  # fmt: skip
        losses = []
        with self._runtime.stage("allowed at random", total=trials) as advance:
            for rows in random_orders(x.num_rows, offsets, trials, self._runtime):
                losses.append(_mean(guarded_batches(x, y, rows, offsets, tau, self._rules)))
                advance(1)
        self._random[key] = float(np.mean(losses))
        return self._random[key]


def _mean(directions: tuple[float, float]) -> float:
    return sum(directions) / 2
